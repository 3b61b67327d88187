//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// drawing is the laboratory, for people.
const drawing = `
                     client                    172.18.0.100  fd00:172:18::64
             ───────────┼───────────
           node1                 node2         172.18.0.11   172.18.0.12    fd00:172:18::b       ::c
     ┌──[kube-proxy]──┐      ┌─────┴─────┐
   pod1a            pod1b  pod2a       pod2b   10.244.1.0/24 10.244.2.0/24  fd00:10:244:1::/64 2::/64
`

// demo is the laboratory with all that runs in it.
type demo struct {
	*screen

	lab    *netns.Lab
	folder folder
	proxy  *proxy
	log    *journal
	// fail ends the demo with an error, such as when the proxy dies.
	fail context.CancelCauseFunc
	// names tells who has an address.
	names map[netip.Addr]string
	// serving are the servers of each pod.
	serving map[string][]*netns.Server

	// sent counts connections, wrong the printed lines that are not as they should be.
	sent, wrong int
}

// setUp builds the laboratory with a server in every pod, and copies the examples.
func setUp(s *screen, fail context.CancelCauseFunc) (d *demo, err error) {
	if err := netns.Check("nft"); err != nil {
		return nil, err
	}
	if _, err := os.Stat(program); err != nil {
		return nil, fmt.Errorf("%w: run make demo, or make build before this, in the folder that has the Makefile", err)
	}
	d = &demo{screen: s, fail: fail, log: &journal{}, names: map[netip.Addr]string{}, serving: map[string][]*netns.Server{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.tearDown())
		}
	}()
	d.lab, err = netns.New(netns.Options{ClientRoutes: []netip.Prefix{
		netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/64"),
	}})
	if err != nil {
		return d, fmt.Errorf("build the laboratory: %w", err)
	}
	for _, host := range d.lab.Hosts() {
		d.names[host.IPv4], d.names[host.IPv6] = host.Name, host.Name
	}
	for _, node := range d.lab.Nodes() {
		for _, cidr := range node.PodCIDRs { // the bridge's own address is the first one
			d.names[cidr.Masked().Addr().Next()] = node.Name
		}
		for _, pod := range node.Pods {
			if err := d.serve(pod); err != nil {
				return d, err
			}
		}
	}
	d.folder, err = copyFolder("examples")
	return d, err
}

// tearDown removes everything. What has not been built is no matter.
func (d *demo) tearDown() error {
	var errs []error
	if d.proxy != nil {
		d.proxy.dismiss()
	}
	if d.lab != nil {
		errs = append(errs, d.lab.Close())
	}
	return errors.Join(append(errs, d.folder.remove())...)
}

// serve answers in a pod on every port that a service of the shop sends to.
func (d *demo) serve(pod *netns.Host) error {
	for _, protocol := range netns.Protocols() {
		server, err := pod.Serve(protocol, targets(protocol)...)
		if err != nil {
			return err
		}
		d.serving[pod.Name] = append(d.serving[pod.Name], server)
	}
	return nil
}

// kill ends the servers of a pod.
func (d *demo) kill(pod string) error {
	var errs []error
	for _, server := range d.serving[pod] {
		errs = append(errs, server.Close())
	}
	delete(d.serving, pod)
	return errors.Join(errs...)
}

// pods are the names of all pods, as they are in the drawing.
func (d *demo) pods() []string {
	var names []string
	for _, node := range d.lab.Nodes() {
		for _, pod := range node.Pods {
			names = append(names, pod.Name)
		}
	}
	return names
}

// start starts kube-proxy and waits for the first packet that it sends on.
func (d *demo) start(ctx context.Context) error {
	d.line("%s Two nodes, two pods on each, and a client outside, each a network namespace:", d.bold("kube-proxy in a laboratory."))
	d.line("%s", d.faint(drawing))
	started := time.Now()
	if err := d.runProxy(); err != nil {
		return err
	}
	first := question{from: "pod1a", to: at("10.96.0.80:80", "[fd00:10:96::80]:80")}
	took, err := d.until(ctx, started, first.probe(d.lab, 0), func(a netns.Answer) bool { return a.Verdict == netns.Answered })
	if err != nil {
		return err
	}
	d.line("node1 runs %s %s", program, strings.Join(arguments("examples"), " "))
	d.line("%s after its start the first connection was answered.", milliseconds(took))
	return nil
}

// until asks until the answer is the wanted one, and tells how long after a moment that arrived.
func (d *demo) until(ctx context.Context, since time.Time, probe netns.Probe, wanted func(netns.Answer) bool) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, answer, err := probe.Until(ctx, wanted)
	d.sent++ // those before are only waiting
	return answer.Sent.Add(answer.Latency).Sub(since), err
}

// folder is a copy of the examples that the demo may change.
type folder struct {
	// scratch is beside the folder that is watched, for files that are not finished.
	scratch, dir string
}

func copyFolder(from string) (f folder, err error) {
	if f.scratch, err = os.MkdirTemp("", "kube-proxy-demo-"); err != nil {
		return f, err
	}
	f.dir = filepath.Join(f.scratch, filepath.Base(from))
	return f, os.CopyFS(f.dir, os.DirFS(from))
}

func (f folder) remove() error {
	if f.scratch == "" {
		return nil
	}
	return os.RemoveAll(f.scratch)
}

// write puts a file in place in one step, and tells the moment just before.
func (f folder) write(name, text string) (time.Time, error) {
	draft := filepath.Join(f.scratch, name)
	if err := os.WriteFile(draft, []byte(text), 0o644); err != nil {
		return time.Time{}, err
	}
	moment := time.Now()
	return moment, os.Rename(draft, filepath.Join(f.dir, name))
}

// edit replaces texts in a file, given as old and new in turn. Each old one must be there.
func (f folder) edit(name string, oldNew ...string) (time.Time, error) {
	data, err := os.ReadFile(filepath.Join(f.dir, name))
	if err != nil {
		return time.Time{}, err
	}
	for i := 0; i < len(oldNew); i += 2 {
		if !strings.Contains(string(data), oldNew[i]) {
			return time.Time{}, fmt.Errorf("%s does not have %q, which the demo changes", name, oldNew[i])
		}
	}
	return f.write(name, strings.NewReplacer(oldNew...).Replace(string(data)))
}

func (f folder) delete(name string) error { return os.Remove(filepath.Join(f.dir, name)) }
