//go:build linux

package app

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// restrictedFlow is an open flow, and what becomes of it when its Service is restricted.
type restrictedFlow struct {
	from     *netns.Host
	to       string // cluster IP, load balancer IP or node port
	protocol netns.Protocol
	// before and after are the endpoints that answer; nil for none. A flow that keeps its endpoint keeps its entry.
	before, after *netns.Host
}

// TestKernelRestrictedFlows restricts a Service while clients send to it without a pause: the UDP flows of the clients that may no
// longer open them end, as if their endpoint had been removed. All others stay.
func TestKernelRestrictedFlows(t *testing.T) {
	t.Parallel()
	for mode, open := range opens(t) {
		t.Run(string(mode), func(t *testing.T) {
			w := newUDPWorld(t, open)
			for _, family := range []netns.Family{netns.IPv4, netns.IPv6} {
				t.Run(family.String(), func(t *testing.T) {
					w := *w
					w.T = t
					w.restrictAll(family)
				})
			}
		})
	}
}

func (w *udpWorld) restrictAll(family netns.Family) {
	client, own, pod, here, there := w.lab.Client, w.lab.Node1.Host, w.lab.Node1.Pods[1], w.lab.Node1.Pods[0], w.lab.Node2.Pods[0]
	const vip, ip, nodePort = "load balancer IP", "cluster IP", "node port"
	ranges := func(hosts ...*netns.Host) func(*corev1.Service) {
		return func(s *corev1.Service) {
			for _, host := range hosts {
				addr := host.Addr(family)
				s.Spec.LoadBalancerSourceRanges = append(s.Spec.LoadBalancerSourceRanges, netip.PrefixFrom(addr, addr.BitLen()).String())
			}
		}
	}
	external := func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal }
	internal := func(s *corev1.Service) {
		local := corev1.ServiceInternalTrafficPolicyLocal
		s.Spec.InternalTrafficPolicy = &local
	}
	nothing := func(*corev1.Service) {}
	both := []*netns.Host{here, there}
	for _, test := range []struct {
		name           string
		endpoints      []*netns.Host
		before, change func(*corev1.Service)
		flows          []restrictedFlow
	}{
		{"first source ranges", both, nothing, ranges(pod), []restrictedFlow{
			{client, vip, netns.UDP, here, nil}, {client, vip, netns.UDP, there, nil}, {own, vip, netns.UDP, there, nil},
			{pod, vip, netns.UDP, there, there}, {client, nodePort, netns.UDP, there, there}, {pod, ip, netns.UDP, there, there},
			{client, vip, netns.TCP, there, there}}},
		{"narrower source ranges", both, ranges(client, own, pod), ranges(own, pod), []restrictedFlow{
			{client, vip, netns.UDP, here, nil}, {pod, vip, netns.UDP, here, here}, {own, vip, netns.UDP, here, here}}},
		{"externalTrafficPolicy Local", both, nothing, external, []restrictedFlow{
			{client, vip, netns.UDP, there, here}, {client, nodePort, netns.UDP, there, here}, {client, vip, netns.UDP, here, here},
			{client, nodePort, netns.UDP, here, here}, {pod, vip, netns.UDP, there, there}, {own, vip, netns.UDP, there, there},
			{own, nodePort, netns.UDP, there, there}, {pod, ip, netns.UDP, there, there}, {client, vip, netns.TCP, there, there}}},
		{"externalTrafficPolicy Local, no endpoint here", []*netns.Host{there}, nothing, external, []restrictedFlow{
			{client, vip, netns.UDP, there, nil}, {client, nodePort, netns.UDP, there, nil}, {pod, vip, netns.UDP, there, there}}},
		{"internalTrafficPolicy Local", both, nothing, internal, []restrictedFlow{
			{pod, ip, netns.UDP, there, here}, {own, ip, netns.UDP, there, here}, {pod, ip, netns.UDP, here, here},
			{pod, vip, netns.UDP, there, there}, {client, nodePort, netns.UDP, there, there}}},
		{"internalTrafficPolicy Local, no endpoint here", []*netns.Host{there}, nothing, internal, []restrictedFlow{
			{pod, ip, netns.UDP, there, nil}, {client, vip, netns.UDP, there, there}}},
	} {
		w.Run(test.name, func(t *testing.T) {
			w := *w
			w.T = t
			addrs := map[string]netip.AddrPort{
				vip:      netip.AddrPortFrom(restrictedVIPs[family], 53),
				nodePort: netip.AddrPortFrom(own.Addr(family), 30053),
				ip:       netip.AddrPortFrom(netip.MustParseAddr(udpServiceIPs[map[netns.Family]int{netns.IPv4: 0, netns.IPv6: 1}[family]]), 53),
			}
			w.serveAs(balanced(test.before), test.endpoints...)
			w.restrict(balanced(test.change), test.endpoints, addrs, test.flows)
		})
	}
}

var restrictedVIPs = map[netns.Family]netip.Addr{netns.IPv4: netip.MustParseAddr("192.0.2.10"), netns.IPv6: netip.MustParseAddr("fd00:192::10")}

// balanced makes a Service with load balancer IPs, with a change.
func balanced(change func(*corev1.Service)) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		for _, vip := range restrictedVIPs {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: vip.String()})
		}
		change(s)
	}
}

// restrict opens the flows, changes the Service, and checks what becomes of each.
func (w *udpWorld) restrict(change func(*corev1.Service), endpoints []*netns.Host, addrs map[string]netip.AddrPort, flows []restrictedFlow) {
	w.Helper()
	open, entries, locals := make([]*netns.Flow, len(flows)), make([][]string, len(flows)), make([]netip.AddrPort, len(flows))
	for i, f := range flows {
		probe := netns.Probe{From: f.from, To: addrs[f.to], Protocol: f.protocol, Timeout: 100 * time.Millisecond}
		var answer netns.Answer
		open[i], answer = w.open(probe, f.before)
		locals[i] = answer.Local
		if entries[i] = w.tracked(answer.Local); f.protocol == netns.UDP && len(entries[i]) != 1 {
			w.Fatalf("%s: entries %v, want one", probe, entries[i])
		}
	}
	family := cluster.FamilyOf(addrs["cluster IP"].Addr())
	swept := w.sweeps[family].Load()
	w.serveAs(change, endpoints...)
	for i, f := range flows {
		switch {
		case f.after == nil:
			w.unanswered(open[i])
			if answer := open[i].Ask(); answer.Verdict == netns.Answered {
				w.Errorf("%s to the %s is answered again: %s", f.from, f.to, answer)
			}
		case f.after != f.before:
			w.moves(open[i], f.after)
		}
	}
	for deadline := time.Now().Add(patience); w.sweeps[family].Load() == swept; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatal("nothing searched for stale flows")
		}
	}
	for i, f := range flows {
		if f.after != f.before {
			continue
		}
		if answer := open[i].Ask(); answer.Verdict != netns.Answered || answer.Endpoint != f.before.Name {
			w.Errorf("%s of %s to the %s: %s, want %s", f.protocol, f.from, f.to, answer, f.before)
		}
		if after := w.tracked(locals[i]); !slices.Equal(after, entries[i]) {
			w.Errorf("%s to the %s at %s: entries %v, and before %v; want one and the same", f.from, f.to, f.before, after, entries[i])
		}
	}
}
