//go:build linux

package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// grow adds a thousand services and measures a change of the cart again. The number of chains and rules must not change.
func (d *demo) grow(ctx context.Context) error {
	const many = 1000
	if err := wait(ctx, longPause); err != nil {
		return err
	}
	before, err := kernelContents(d.lab.Node1.Host)
	if err != nil {
		return err
	}
	d.line("")
	d.line("%s They add map elements, but no chains or rules:", d.bold("1,000 more Services."))
	d.line("")
	d.line("%s", effect("in the kernel, both families", "", before.String()))
	since, err := d.folder.write("more.yaml", manifests("more", many, "10.98", "fd00:10:98:"))
	if err != nil {
		return err
	}
	last := check{from: "pod1b", to: at("10.98.3.231:80", "[fd00:10:98::3e7]:80")}
	took, err := d.until(ctx, since, last.probe(d.lab, 1), isAnswered)
	if err != nil {
		return err
	}
	d.line("%s", effect("a file with 1,000 services is added", milliseconds(took), "until the last one answered"))
	if err := wait(ctx, longPause); err != nil {
		return err
	}
	moves, err := d.moveCart(ctx)
	if err != nil {
		return err
	}
	d.line("%s", effect("cart moves again", milliseconds(moves.median()), moves.note()))
	after, err := kernelContents(d.lab.Node1.Host)
	if err != nil {
		return err
	}
	var complaints []string
	if after.chains != before.chains || after.rules != before.rules {
		complaints = append(complaints, "the number of chains and rules changed")
	}
	d.verdict(effect("now in the kernel", "", after.String()), complaints)
	return nil
}

// restart kills kube-proxy and starts it again, and then stops it as the kubelet does.
func (d *demo) restart(ctx context.Context) error {
	d.line("")
	d.line("%s The rules in the kernel work without it:", d.bold("kube-proxy restarts."))
	d.line("")
	bystander := d.bystander(ctx)
	defer bystander.Stop()
	d.proxy.expectExit()
	if err := d.proxy.command.Kill(); err != nil {
		return err
	}
	if _, err := d.folder.edit(cartMoves()); err != nil {
		return err
	}
	since := time.Now()
	if err := d.runProxy(); err != nil {
		return err
	}
	took, err := d.until(ctx, since, cart().probe(d.lab, 0), answeredBy("pod2b"))
	if err != nil {
		return err
	}
	d.line("%s", effect("kill -9, cart moves, kube-proxy starts again", milliseconds(took), "until connections reached the new pod"))
	if err := wait(ctx, pause); err != nil {
		return err
	}
	since = time.Now()
	if err := d.proxy.terminate(d.exit); err != nil {
		return err
	}
	d.line("%s", effect("SIGTERM", milliseconds(time.Since(since)), "until it exited"))
	if err := wait(ctx, 2*pause); err != nil {
		return err
	}
	d.reportBystander(bystander.Stop(), "checkout, during and after all of that")
	return nil
}

// manifests returns n services that pod1b and pod2b serve on port 80, numbered from 0 in their names and cluster IPs.
// ipv4 is the first half of their IPv4 addresses; ipv6 is their IPv6 address without the last group.
func manifests(name string, n int, ipv4, ipv6 string) string {
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
	documents := make([]string, n)
	for i := range n {
		documents[i] = fmt.Sprintf(form, fmt.Sprintf("%s-%d", name, i),
			fmt.Sprintf("%s.%d.%d", ipv4, i/256, i%256), fmt.Sprintf("%s:%x", ipv6, i))
	}
	return strings.Join(documents, "---\n")
}
