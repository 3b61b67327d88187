//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// drawing is a diagram of the lab.
const drawing = `
                         client
                      172.18.0.100
          ┌────────────────┴────────────────┐
        node1                             node2
     172.18.0.11                       172.18.0.12
     [kube-proxy]
   ┌──────┴──────┐                   ┌──────┴──────┐
 pod1a         pod1b               pod2a         pod2b
10.244.1.2    10.244.1.3          10.244.2.2    10.244.2.3
`

// demo is the lab with everything that runs in it.
type demo struct {
	*screen
	tempo

	lab    *netns.Lab
	folder folder
	proxy  *proxy
	log    *logBuffer
	// fail stops the demo with an error, for example when the proxy exits.
	fail context.CancelCauseFunc
	// names maps addresses to host names.
	names map[netip.Addr]string
	// serving are the servers of each pod.
	serving map[string][]*netns.Server

	// sent counts connections, wrong the printed lines with errors.
	sent, wrong int
}

// setUp builds the lab with servers in every pod, and copies the examples.
func setUp(s *screen, t tempo, fail context.CancelCauseFunc) (d *demo, err error) {
	if err := netns.Check("nft"); err != nil {
		return nil, err
	}
	if _, err := os.Stat(program); err != nil {
		return nil, fmt.Errorf("%w: run make demo, or make build before this, in the folder with the Makefile", err)
	}
	d = &demo{screen: s, tempo: t, fail: fail, log: &logBuffer{}, names: map[netip.Addr]string{}, serving: map[string][]*netns.Server{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.tearDown())
		}
	}()
	d.lab, err = netns.New(netns.Options{ClientRoutes: []netip.Prefix{
		netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/64"),
	}})
	if err != nil {
		return d, fmt.Errorf("build the lab: %w", err)
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

// tearDown removes everything that setUp and start created. It may be called after a failed setUp.
func (d *demo) tearDown() error {
	var errs []error
	if d.proxy != nil {
		d.proxy.expectExit()
	}
	if d.lab != nil {
		errs = append(errs, d.lab.Close())
	}
	return errors.Join(append(errs, d.folder.remove())...)
}

// serve starts servers in a pod on all target ports of the shop.
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

// revive starts the servers of a pod that was killed.
func (d *demo) revive(name string) error {
	pod, err := d.lab.Host(name)
	if err != nil {
		return err
	}
	return d.serve(pod)
}

// pods returns the names of all pods, in the order of the diagram.
func (d *demo) pods() []string {
	var names []string
	for _, node := range d.lab.Nodes() {
		for _, pod := range node.Pods {
			names = append(names, pod.Name)
		}
	}
	return names
}

// start starts kube-proxy and waits for the first answered connection.
func (d *demo) start(ctx context.Context) error {
	d.line("%s Two nodes with two pods each and an external client, each in its own network namespace:", d.bold("The lab."))
	d.line("")
	d.line("%s", indent(drawing))
	d.line("")
	d.line("IPv6: nodes and client in fd00:172:18::/64, pods in fd00:10:244:1::/64 and fd00:10:244:2::/64.")
	d.line("")
	started := time.Now()
	if err := d.runProxy(); err != nil {
		return err
	}
	first := check{from: "pod1a", to: at("10.96.0.80:80", "[fd00:10:96::80]:80")}
	took, err := d.until(ctx, started, first.probe(d.lab, 0), isAnswered)
	if err != nil {
		return err
	}
	// The proxy writes the families one after the other, and the checks use both.
	if _, err := d.until(ctx, started, first.probe(d.lab, 1), isAnswered); err != nil {
		return err
	}
	d.line("%s It runs in node1. The first connection was answered %s after its start:", d.bold("kube-proxy."), milliseconds(took))
	d.line("")
	d.line("%s", indent(commandLine(program, arguments("examples"))))
	return nil
}
