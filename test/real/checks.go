//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// inPods is the path of this program in pods.
const inPods = "/usr/local/bin/real"

// The addresses of the Services of objects.yaml.
var (
	webURLs    = []string{"http://10.96.0.100/", "http://[fd00:10:96::100]/"}
	stickyURLs = []string{"http://10.96.0.101/", "http://[fd00:10:96::101]/"}
	emptyURLs  = []string{"http://10.96.0.102/", "http://[fd00:10:96::102]/"}
)

// nodePort returns the URLs of a port of a node.
func (n *node) nodePort(port int) []string {
	return []string{fmt.Sprintf("http://%s:%d/", n.ipv4, port), fmt.Sprintf("http://[%s]:%d/", n.ipv6, port)}
}

// pod is a pod that is not being deleted.
type pod struct{ name, node string }

// pods returns the pods with a label, sorted by name.
func (w *world) pods(ctx context.Context, namespace, label string) ([]pod, error) {
	text, err := w.kubectl(ctx, "-n", namespace, "get", "pods", "-l", label, "-o", "json")
	if err != nil {
		return nil, err
	}
	var list struct {
		Items []struct {
			Metadata struct{ Name, DeletionTimestamp string }
			Spec     struct{ NodeName string }
		}
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, err
	}
	var all []pod
	for _, item := range list.Items {
		if item.Metadata.DeletionTimestamp == "" {
			all = append(all, pod{item.Metadata.Name, item.Spec.NodeName})
		}
	}
	return all, nil
}

// place is where connections come from.
type place struct {
	name string
	// node is nil beside the cluster.
	node *node
	pod  string
}

// command prepares this program in the place.
func (w *world) command(ctx context.Context, p place, args ...string) *exec.Cmd {
	switch {
	case p.pod != "":
		return command(ctx, "kubectl", append([]string{"exec", "-i", p.pod, "--", inPods}, args...)...)
	case p.node != nil:
		return p.node.command(ctx, "real", args...)
	}
	return command(ctx, "real", args...)
}

// places returns the machine beside the cluster, the nodes, and a pod of each label on each node.
func (w *world) places(ctx context.Context, labels ...string) ([]place, error) {
	all := []place{{name: "outside"}}
	for _, n := range w.nodes {
		all = append(all, place{name: n.name, node: n})
	}
	for _, label := range labels {
		pods, err := w.pods(ctx, "default", label)
		if err != nil {
			return nil, err
		}
		for _, n := range w.nodes {
			if i := slices.IndexFunc(pods, func(p pod) bool { return p.node == n.name }); i >= 0 {
				all = append(all, place{name: pods[i].name, node: n, pod: pods[i].name})
			}
		}
	}
	return all, nil
}

// check connects to all Services from everywhere, and repeats that until all answers are right.
func (w *world) check(ctx context.Context) error {
	checks := 0
	err := eventually(ctx, func() (err error) {
		checks, err = w.checkOnce(ctx)
		return err
	})
	fmt.Printf("   %d checks of Services\n", checks)
	return err
}

func (w *world) checkOnce(ctx context.Context) (checks int, err error) {
	web, err := w.pods(ctx, "default", "app=web")
	if err != nil {
		return 0, err
	}
	var everywhere []string
	for _, p := range web {
		everywhere = append(everywhere, p.name)
	}
	places, err := w.places(ctx, "app=client", "app=web")
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, p := range places {
		want := map[string]string{} // all different answers by URLs
		expect := func(answers string, urls ...string) {
			for _, url := range urls {
				want[url] = answers
			}
		}
		for _, n := range w.nodes {
			expect(strings.Join(everywhere, ", "), n.nodePort(30080)...)
			if p.node == nil && answersOf(web, n, "") != "" { // from the node's own pods, which see the client's address
				expect(answersOf(web, n, gateway4), n.nodePort(30081)[0]+"client")
				expect(answersOf(web, n, gateway6), n.nodePort(30081)[1]+"client")
			}
		}
		if p.node != nil {
			expect(strings.Join(everywhere, ", "), webURLs...)
			expect("any", stickyURLs...)
			expect(refused, emptyURLs...)
		}
		if p.pod != "" {
			expect(strings.Join(everywhere, ", "), "http://web.default.svc.cluster.local./")
		}
		text, err := output(w.command(ctx, p, append([]string{"ask"}, slices.Collect(maps.Keys(want))...)...))
		got := map[string]string{}
		if err == nil {
			err = json.Unmarshal([]byte(text), &got)
		}
		errs = append(errs, err)
		for url, answers := range want {
			if got[url] != answers && (answers != "any" || !slices.Contains(everywhere, got[url])) {
				errs = append(errs, fmt.Errorf("%s to %s: %q, want %q", p.name, url, got[url], answers))
			}
		}
		checks += len(want)
	}
	return checks, errors.Join(errs...)
}

// answersOf returns the answers of a node's pods to a client.
func answersOf(pods []pod, n *node, client string) string {
	var all []string
	for _, p := range pods {
		if p.node == n.name {
			all = append(all, p.name+" "+client)
		}
	}
	return strings.Join(all, ", ")
}

// under makes a change while connections are made, of which none may fail, and then checks all Services. spare is a node that pods and
// connections have to avoid because the change stops it.
func (w *world) under(ctx context.Context, spare *node, change func() error) error {
	places, err := w.places(ctx, "app=client")
	if err != nil {
		return err
	}
	var ends []func() (report, error)
	for _, p := range places {
		urls := webURLs
		if p.node == nil {
			urls = nil
			for _, n := range w.nodes {
				if n != spare {
					urls = append(urls, n.nodePort(30080)...)
				}
			}
		}
		if p.node == nil || p.node != spare {
			end, err := w.startLoad(ctx, p, urls)
			if err != nil {
				return err
			}
			ends = append(ends, end)
		}
	}
	time.Sleep(time.Second)
	failed := change()
	time.Sleep(time.Second)
	var sum report
	for _, end := range ends {
		r, err := end()
		failed = errors.Join(failed, err)
		sum.Connections, sum.Failed, sum.Broken = sum.Connections+r.Connections, sum.Failed+r.Failed, sum.Broken+r.Broken
		sum.Slowest, sum.Errors = max(sum.Slowest, r.Slowest), append(sum.Errors, r.Errors...)
	}
	fmt.Printf("   %d connections, %d failed, the slowest took %v; %d of those that lasted broke\n",
		sum.Connections, sum.Failed, sum.Slowest.Round(time.Millisecond), sum.Broken)
	if sum.Failed > 0 || sum.Broken > 0 && spare == nil {
		failed = errors.Join(failed, fmt.Errorf("%d of %d connections failed, %d broke: %q", sum.Failed, sum.Connections, sum.Broken, sum.Errors))
	}
	if failed != nil {
		return failed
	}
	return w.check(ctx)
}

// startLoad starts load in a place. The function ends it and returns its report.
func (w *world) startLoad(ctx context.Context, p place, urls []string) (end func() (report, error), err error) {
	cmd := w.command(ctx, p, append([]string{"load"}, urls...)...)
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() (r report, err error) {
		input.Close()
		text, err := io.ReadAll(out)
		if err = errors.Join(err, cmd.Wait()); err == nil {
			err = json.Unmarshal(text, &r)
		}
		if err != nil {
			err = fmt.Errorf("load in %s: %w: %s", p.name, err, text)
		}
		return r, err
	}, nil
}
