//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// rest is the time between two changes, as if a person had made them.
const rest = 150 * time.Millisecond

// The shop's cart, and its pod in both families, before and after it has moved.
const (
	cartFile = "cart.yaml"
	cart4    = "10.244.1.2"
	cart6    = "fd00:10:244:1::2"
	moved4   = "10.244.2.3"
	moved6   = "fd00:10:244:2::3"
)

// wait waits, if the demo goes on so long.
func wait(ctx context.Context, duration time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(duration):
		return nil
	}
}

// change changes files, and prints how soon that was met.
func (d *demo) change(ctx context.Context) error {
	d.line("")
	d.line("%s How long from the file's change to the first connection that met it:", d.bold("Changes."))
	bystander := d.bystander(ctx)
	defer bystander.Stop()
	for _, step := range []func(context.Context) error{d.moveCart, d.addService, d.killPod} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	d.tellBystander(bystander.Stop(), "meanwhile, checkout, which nothing was done to")
	return nil
}

// bystander asks a service that nothing is done to, all the time.
func (d *demo) bystander(ctx context.Context) *netns.Stream {
	q := question{from: "client", to: at("192.0.2.43:443", "[2001:db8::43]:443")}
	probe := q.probe(d.lab, 0)
	probe.Timeout = 3 * time.Second
	return probe.Stream(ctx, 100)
}

func (d *demo) tellBystander(tally netns.Tally, what string) {
	d.sent += tally.Sent
	var complaints []string
	if tally.Failed() > 0 {
		complaints = append(complaints, fmt.Sprintf("none should fail; the first that did: %v", tally.Failures[0]))
	}
	d.verdict(effect(what, fmt.Sprintf("%d of %d connections answered", tally.Verdicts[netns.Answered], tally.Sent)), complaints)
}

// effect is a line of the list of changes.
func effect(what, result string) string { return fmt.Sprintf("  %-50s  %s", what, result) }

// moveCart changes the cart's only endpoint from one pod to another, and back.
func (d *demo) moveCart(ctx context.Context) error {
	took, err := d.moveCartTo(ctx)
	if err != nil {
		return err
	}
	d.line("%s", effect("cart moves to another pod", took.String()))
	return nil
}

func (d *demo) moveCartTo(ctx context.Context) (took times, err error) {
	there := []string{cart4, moved4, cart6, moved6}
	back := []string{moved4, cart4, moved6, cart6}
	q := question{from: "pod1b", to: at("10.96.0.63:6379", "[fd00:10:96::63]:6379")}
	for try := range 6 {
		if err := wait(ctx, rest); err != nil {
			return nil, err
		}
		edits, pod := there, "pod2b"
		if try%2 == 1 {
			edits, pod = back, "pod1a"
		}
		since, err := d.folder.edit(cartFile, edits...)
		if err != nil {
			return nil, err
		}
		// The families are programmed together; each is looked at in turn.
		duration, err := d.until(ctx, since, q.probe(d.lab, try/2%2), func(a netns.Answer) bool { return a.Endpoint == pod })
		if err != nil {
			return nil, err
		}
		took = append(took, duration)
	}
	return took, nil
}

// addService adds a service, and removes it again to add it once more.
func (d *demo) addService(ctx context.Context) error {
	const file = "wishlist.yaml"
	wishlist := servicesNamed("wishlist", 1, "10.97.0", "fd00:10:97:")
	q := question{from: "pod1b", to: at("10.97.0.0:80", "[fd00:10:97::]:80")}
	var took times
	for try := range 4 {
		if try > 0 {
			if err := d.folder.delete(file); err != nil {
				return err
			}
		}
		if err := wait(ctx, rest); err != nil {
			return err
		}
		since, err := d.folder.write(file, wishlist)
		if err != nil {
			return err
		}
		duration, err := d.until(ctx, since, q.probe(d.lab, try%2), func(a netns.Answer) bool { return a.Verdict == netns.Answered })
		if err != nil {
			return err
		}
		took = append(took, duration)
	}
	d.line("%s", effect("a new service, wishlist, is added", took.String()))
	return nil
}

// killPod ends a pod of the frontend, and then says so in the file.
func (d *demo) killPod(ctx context.Context) error {
	const pod = "pod2a"
	// A failed connection is one that met the dead pod.
	q := question{from: "client", to: at("192.0.2.80:80", "[2001:db8::80]:80")}
	if err := wait(ctx, rest); err != nil {
		return err
	}
	stream := q.probe(d.lab, 0).Stream(ctx, 500)
	defer stream.Stop()
	if err := d.kill(pod); err != nil {
		return err
	}
	if err := wait(ctx, rest); err != nil {
		return err
	}
	since, err := d.folder.edit("frontend.yaml",
		`[10.244.2.2], nodeName: node2, conditions: {ready: true}`, `[10.244.2.2], nodeName: node2, conditions: {ready: false}`,
		`["fd00:10:244:2::2"], nodeName: node2, conditions: {ready: true}`, `["fd00:10:244:2::2"], nodeName: node2, conditions: {ready: false}`)
	if err != nil {
		return err
	}
	if err := wait(ctx, 2*rest); err != nil {
		return err
	}
	tally := stream.Stop()
	d.sent += tally.Sent
	last := since
	for _, failure := range tally.Failures {
		if failure.Sent.After(last) {
			last = failure.Sent
		}
	}
	d.line("%s", effect("frontend's pod2a dies, and is no longer ready", fmt.Sprintf("%s  (the last connection that met it; %d did since it died)",
		milliseconds(last.Sub(since)), tally.Failed())))
	q.protocol, q.way, q.want = netns.TCP, "load balancer", answered(8080, "node1", "pod1a", "pod1b", "pod2b")
	d.line("")
	for family := range netns.Families() {
		d.askOne(q, family)
	}
	return nil
}

// grow adds a thousand services, and looks at the cart once more.
func (d *demo) grow(ctx context.Context) error {
	const many = 1000
	before, err := kernelContents(d.lab.Node1.Host)
	if err != nil {
		return err
	}
	d.line("")
	d.line("%s The kernel holds, for both families, %v.", d.bold("A thousand services more."), before)
	text := servicesNamed("bulk", many, "10.98", "fd00:10:98:")
	since, err := d.folder.write("bulk.yaml", text)
	if err != nil {
		return err
	}
	last := question{from: "pod1b", to: at("10.98.3.231:80", "[fd00:10:98::3e7]:80")}
	took, err := d.until(ctx, since, last.probe(d.lab, 1), func(a netns.Answer) bool { return a.Verdict == netns.Answered })
	if err != nil {
		return err
	}
	d.line("%s", effect("one file with 1,000 services, until the last answers", milliseconds(took)))
	if err := wait(ctx, time.Second); err != nil {
		return err
	}
	again, err := d.moveCartTo(ctx)
	if err != nil {
		return err
	}
	d.line("%s", effect("cart moves, with 1,000 services beside it", again.String()))
	after, err := kernelContents(d.lab.Node1.Host)
	if err != nil {
		return err
	}
	d.line("%s", effect("the kernel now holds", after.String()))
	return nil
}

// restart kills kube-proxy and starts it anew, and then ends it as the kubelet does.
func (d *demo) restart(ctx context.Context) error {
	d.line("")
	d.line("%s What is programmed serves without it:", d.bold("kube-proxy goes and comes."))
	bystander := d.bystander(ctx)
	defer bystander.Stop()
	d.proxy.dismiss()
	if err := d.proxy.command.Kill(); err != nil {
		return err
	}
	// The cart moves while nobody looks.
	if _, err := d.folder.edit(cartFile, cart4, moved4, cart6, moved6); err != nil {
		return err
	}
	since := time.Now()
	if err := d.runProxy(); err != nil {
		return err
	}
	q := question{from: "pod1b", to: at("10.96.0.63:6379", "[fd00:10:96::63]:6379")}
	took, err := d.until(ctx, since, q.probe(d.lab, 0), func(a netns.Answer) bool { return a.Endpoint == "pod2b" })
	if err != nil {
		return err
	}
	d.line("%s", effect("killed (-9) and started anew, cart having moved", milliseconds(took)))
	if err := wait(ctx, rest); err != nil {
		return err
	}
	since = time.Now()
	if err := d.proxy.terminate(); err != nil {
		return err
	}
	d.line("%s", effect("told to end (SIGTERM), until it has", milliseconds(time.Since(since))))
	if err := wait(ctx, 2*rest); err != nil {
		return err
	}
	d.tellBystander(bystander.Stop(), "checkout, all the while and thereafter")
	return nil
}

// servicesNamed writes services that pod1b and pod2b serve, numbered from 0, as the addresses are. An IPv4 prefix has
// two or three of the four numbers, and the IPv6 prefix all but the last.
func servicesNamed(name string, n int, prefix4, prefix6 string) string {
	const form = `apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: shop}
spec:
  ipFamilyPolicy: RequireDualStack
  ipFamilies: [IPv4, IPv6]
  clusterIPs: [%[2]s, "%[3]s"]
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-ipv4, namespace: shop, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints:
- {addresses: [10.244.1.3], nodeName: node1, conditions: {ready: true}}
- {addresses: [10.244.2.3], nodeName: node2, conditions: {ready: true}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-ipv6, namespace: shop, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv6
ports: [{name: http, port: 8080}]
endpoints:
- {addresses: ["fd00:10:244:1::3"], nodeName: node1, conditions: {ready: true}}
- {addresses: ["fd00:10:244:2::3"], nodeName: node2, conditions: {ready: true}}
`
	var files []string
	for i := range n {
		numbered, address := name, fmt.Sprintf("%s.%d", prefix4, i)
		if n > 1 {
			numbered, address = fmt.Sprintf("%s-%d", name, i), fmt.Sprintf("%s.%d.%d", prefix4, i/256, i%256)
		}
		files = append(files, fmt.Sprintf(form, numbered, address, fmt.Sprintf("%s:%x", prefix6, i)))
	}
	return strings.Join(slices.Clip(files), "---\n")
}
