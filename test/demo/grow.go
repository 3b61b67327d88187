//go:build linux

package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// grow adds a thousand services, and looks at the cart once more. The chains and rules must not have become more.
func (d *demo) grow(ctx context.Context) error {
	const many = 1000
	if err := wait(ctx, longRest); err != nil {
		return err
	}
	before, err := kernelContents(d.lab.Node1.Host)
	if err != nil {
		return err
	}
	d.line("")
	d.line("%s They cost elements of maps, but neither chains nor rules:", d.bold("1,000 services more."))
	d.line("")
	d.line("%s", effect("the kernel holds, both families", "", before.String()))
	since, err := d.folder.write("more.yaml", manifests("more", many, "10.98", "fd00:10:98:"))
	if err != nil {
		return err
	}
	last := question{from: "pod1b", to: at("10.98.3.231:80", "[fd00:10:98::3e7]:80")}
	took, err := d.until(ctx, since, last.probe(d.lab, 1), isAnswered)
	if err != nil {
		return err
	}
	d.line("%s", effect("a file with 1,000 services is added", milliseconds(took), "until the last of them answered"))
	if err := wait(ctx, longRest); err != nil {
		return err
	}
	moves, err := d.moveCart(ctx)
	if err != nil {
		return err
	}
	d.line("%s", effect("cart moves once more", milliseconds(moves.median()), moves.note()))
	after, err := kernelContents(d.lab.Node1.Host)
	if err != nil {
		return err
	}
	var complaints []string
	if after.chains != before.chains || after.rules != before.rules {
		complaints = append(complaints, "the numbers of chains and rules should be what they were")
	}
	d.verdict(effect("the kernel holds now", "", after.String()), complaints)
	return nil
}

// restart kills kube-proxy and starts it anew, and then ends it as the kubelet does.
func (d *demo) restart(ctx context.Context) error {
	d.line("")
	d.line("%s What is programmed serves on without it:", d.bold("kube-proxy goes and comes."))
	d.line("")
	bystander := d.bystander(ctx)
	defer bystander.Stop()
	d.proxy.dismiss()
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
	d.line("%s", effect("kill -9, cart moves, and a new start", milliseconds(took), "until it knew that cart had moved"))
	if err := wait(ctx, rest); err != nil {
		return err
	}
	since = time.Now()
	if err := d.proxy.terminate(); err != nil {
		return err
	}
	d.line("%s", effect("SIGTERM", milliseconds(time.Since(since)), "until it had ended"))
	if err := wait(ctx, 2*rest); err != nil {
		return err
	}
	d.tellBystander(bystander.Stop(), "checkout, all the while and thereafter")
	return nil
}

// manifests writes services that pod1b and pod2b serve on port 80, n of them with their numbers from 0 in their names
// and cluster IPs. Their addresses begin with the first two numbers in IPv4, and all but the last one in IPv6.
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
