//go:build linux

package app

import (
	"context"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	trackedflows "github.com/seed-11a05479/kube-proxy/pkg/kernel/conntrack"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/host"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/backendtest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/iptables"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/nftables"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/conntrack"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// udpWorld is a proxy at work in node1, with a Service default/dns on port 53 and node port 30053 of all protocols.
type udpWorld struct {
	*testing.T
	lab     *netns.Lab
	builder *cluster.Builder
	// dead is an endpoint that terminates and does not serve any more; nil if all are ready.
	dead *netns.Host
	// sweeps counts the searches for stale flows in each family.
	sweeps map[cluster.Family]*atomic.Int64
	// resets counts the TCP connections that were reset; it is nil without the gate ResetGoneEndpoints.
	resets *atomic.Int64
}

var flowProtocols = []corev1.Protocol{corev1.ProtocolUDP, corev1.ProtocolTCP, corev1.ProtocolSCTP}

var udpServiceIPs = []string{"10.96.0.10", "fd00:10:96::10"}

func newUDPWorld(t *testing.T, open backendtest.Open) *udpWorld {
	t.Helper()
	return newFlowWorld(t, open, nil)
}

// newFlowWorld makes a world that counts resets of TCP connections, or has none.
func newFlowWorld(t *testing.T, open backendtest.Open, resets *atomic.Int64) *udpWorld {
	t.Helper()
	netns.Require(t, "conntrack")
	bench := backendtest.NewBench(t, open)
	w := &udpWorld{T: t, lab: bench.Lab, builder: cluster.NewBuilder("node1"), resets: resets,
		sweeps: map[cluster.Family]*atomic.Int64{cluster.IPv4: {}, cluster.IPv6: {}}}
	var table *trackedflows.Kernel
	if err := w.lab.Node1.Do(func() (err error) { table, err = trackedflows.Open(); return err }); err != nil {
		t.Fatal(err)
	}
	config := conntrack.Config{Families: []cluster.Family{cluster.IPv4, cluster.IPv6}, Table: table,
		Swept: func(family cluster.Family, _ time.Duration, _ int) { w.sweeps[family].Add(1) }}
	if resets != nil {
		config.Resets = &conntrack.Resets{Done: func(_ cluster.Family, n int) { resets.Add(int64(n)) },
			Abort: func(client, server netip.AddrPort) error {
				return w.lab.Node1.Do(func() error { return host.AbortTCP(client, server) })
			}}
	}
	reconciler := conntrack.New(config)
	loop := proxy.New(proxy.Config{Builder: w.builder, Backend: bench.Backend, Observers: []proxy.Observer{reconciler},
		Plan: &plan.Options{NodePorts: plan.NodePortAddresses{Primary: true}, ServeExternalIPs: true, KeepTerminatingUDPFlows: true,
			ResetGoneEndpoints: resets != nil, LocalTraffic: plan.LocalTraffic{CIDRs: w.lab.Node1.PodCIDRs}}})
	var own []netip.Addr
	for _, family := range []netns.Family{netns.IPv4, netns.IPv6} {
		own = append(own, w.lab.Node1.Addr(family))
	}
	w.update(func(u *cluster.Update) {
		u.SetInterfaces(own)
		u.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: w.lab.Node1.IPv4.String()}, {Type: corev1.NodeInternalIP, Address: w.lab.Node1.IPv6.String()}}}})
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	inNode := func(ctx context.Context) error { // where the backend starts nft
		return w.lab.Node1.Do(func() error { return loop.Run(ctx) })
	}
	go func() { ended <- together(ctx, inNode, reconciler.Run) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := table.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *udpWorld) update(change func(*cluster.Update)) {
	w.Helper()
	if err := w.builder.Update(change); err != nil {
		w.Fatal(err)
	}
}

// serve makes the Service, with these pods as its endpoints.
func (w *udpWorld) serve(pods ...*netns.Host) {
	w.Helper()
	w.serveAs(func(*corev1.Service) {}, pods...)
}

// serveAs makes the Service with a change, with these pods as its endpoints.
func (w *udpWorld) serveAs(change func(*corev1.Service), pods ...*netns.Host) {
	w.Helper()
	w.update(func(u *cluster.Update) {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "dns"}}
		s.Spec.Type, s.Spec.ClusterIP, s.Spec.ClusterIPs = corev1.ServiceTypeNodePort, udpServiceIPs[0], udpServiceIPs
		for _, protocol := range flowProtocols {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: strings.ToLower(string(protocol)), Protocol: protocol, Port: 53, NodePort: 30053})
		}
		change(s)
		u.SetService(s)
		for _, family := range []netns.Family{netns.IPv4, netns.IPv6} {
			u.SetEndpointSlice(w.endpointSlice(family, pods))
		}
	})
}

func (w *udpWorld) endpointSlice(family netns.Family, pods []*netns.Host) *discoveryv1.EndpointSlice {
	kind := discoveryv1.AddressTypeIPv4
	if family == netns.IPv6 {
		kind = discoveryv1.AddressTypeIPv6
	}
	slice := &discoveryv1.EndpointSlice{AddressType: kind, ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "dns-" + strings.ToLower(string(kind)), Labels: map[string]string{discoveryv1.LabelServiceName: "dns"}}}
	port := int32(5353)
	for _, protocol := range flowProtocols {
		name := strings.ToLower(string(protocol))
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &name, Protocol: &protocol, Port: &port})
	}
	for _, pod := range pods {
		endpoint := discoveryv1.Endpoint{Addresses: []string{pod.Addr(family).String()}}
		for _, node := range w.lab.Nodes() {
			if slices.Contains(node.Pods, pod) {
				endpoint.NodeName = &node.Name
			}
		}
		if yes, no := true, false; pod == w.dead {
			endpoint.Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &no, Terminating: &yes}
		}
		slice.Endpoints = append(slice.Endpoints, endpoint)
	}
	return slice
}

func (w *udpWorld) unserve() {
	w.update(func(u *cluster.Update) { u.DeleteService(cluster.ServiceName{Namespace: "default", Name: "dns"}) })
}

// patience limits each wait. Normally the rules are in force in milliseconds, and stale flows are deleted right after that.
const patience = 30 * time.Second

// open opens a flow that one of the pods answers.
func (w *udpWorld) open(probe netns.Probe, pods ...*netns.Host) (*netns.Flow, netns.Answer) {
	w.Helper()
	for deadline := time.Now().Add(patience); ; {
		flow, answer := probe.Open()
		if flow != nil && slices.ContainsFunc(pods, func(h *netns.Host) bool { return h.Name == answer.Endpoint }) {
			w.Cleanup(func() { flow.Close() })
			return flow, answer
		}
		if flow != nil {
			flow.Close()
		}
		if time.Now().After(deadline) {
			w.Fatalf("%s: no answer of %v: %s", probe, pods, answer)
		}
	}
}

// longestGap is how long a flow may go on to an endpoint that no longer serves it, without the time in which the machine was
// too busy. It is normally milliseconds; a flow that nobody deletes never ends, because its own requests keep it alive.
const longestGap = 10 * time.Second

// becomes sends requests on a flow until the answer is as wanted, and fails if that takes longer than longestGap.
func (w *udpWorld) becomes(flow *netns.Flow, what string, wanted func(netns.Answer) bool) {
	w.Helper()
	late := make(chan struct{})
	defer w.lab.After(longestGap, func() { close(late) })()
	for began := time.Now(); ; {
		answer := flow.Ask()
		if wanted(answer) {
			w.Logf("%s after %s", what, time.Since(began).Round(time.Millisecond))
			return
		}
		select {
		case <-late:
			w.Fatalf("after %s: %s, want: %s", time.Since(began), answer, what)
		default:
		}
	}
}

// moves sends requests on a flow until the pod answers.
func (w *udpWorld) moves(flow *netns.Flow, to *netns.Host) {
	w.Helper()
	w.becomes(flow, "moved to "+to.Name, func(a netns.Answer) bool { return a.Verdict == netns.Answered && a.Endpoint == to.Name })
}

var idOf = regexp.MustCompile(`\bid=(\d+)`)

// tracked are the identities of node1's UDP entries from an address and port.
func (w *udpWorld) tracked(from netip.AddrPort) []string {
	w.Helper()
	family := "ipv4"
	if from.Addr().Is6() {
		family = "ipv6"
	}
	out, err := w.lab.Node1.Command("conntrack", "-L", "-f", family, "-p", "udp", "-o", "id",
		"--src", from.Addr().String(), "--sport", strconv.Itoa(int(from.Port()))).Output()
	if err != nil {
		w.Fatalf("conntrack -L: %v", err)
	}
	var ids []string
	for _, match := range idOf.FindAllStringSubmatch(string(out), -1) {
		ids = append(ids, match[1])
	}
	return ids
}

// opens returns a function for each mode that opens its backend for both families.
func opens(t *testing.T) map[config.ProxyMode]backendtest.Open {
	families := []cluster.Family{cluster.IPv4, cluster.IPv6}
	return map[config.ProxyMode]backendtest.Open{
		config.ProxyModeNFTables: func() (backend.Backend, error) {
			return nftables.Mode{Options: nftables.Options{Mark: 0x4000}}.Open(t.Context(), families...)
		},
		config.ProxyModeIPTables: func() (backend.Backend, error) {
			return iptables.Mode{Options: iptables.Options{Mark: 0x4000}, Settings: host.Kernel{}}.Open(t.Context(), families...)
		},
	}
}

// TestKernelUDPFlows keeps flows open while their endpoints and their Service come and go, in each mode.
func TestKernelUDPFlows(t *testing.T) {
	t.Parallel()
	for mode, open := range opens(t) {
		t.Run(string(mode), func(t *testing.T) { newUDPWorld(t, open).all(t, (*udpWorld).flows) })
	}
}

// TestKernelTerminatingUDPFlows keeps flows open to an endpoint that terminates, in each mode.
func TestKernelTerminatingUDPFlows(t *testing.T) {
	t.Parallel()
	for mode, open := range opens(t) {
		t.Run(string(mode), func(t *testing.T) { newUDPWorld(t, open).all(t, (*udpWorld).terminating) })
	}
}

// all does something with flows to a cluster IP and to a node port, in both families, and the endpoints of two nodes.
func (w *udpWorld) all(t *testing.T, do func(w *udpWorld, probe netns.Probe, a, b *netns.Host)) {
	a, b := w.lab.Node1.Pods[0], w.lab.Node2.Pods[0]
	for _, test := range []struct {
		name string
		from *netns.Host
		to   func(netns.Family) netip.AddrPort
	}{
		{"cluster IP", w.lab.Node1.Pods[1], func(f netns.Family) netip.AddrPort {
			return netip.AddrPortFrom(netip.MustParseAddr(udpServiceIPs[map[netns.Family]int{netns.IPv4: 0, netns.IPv6: 1}[f]]), 53)
		}},
		{"node port", w.lab.Client, func(f netns.Family) netip.AddrPort { return netip.AddrPortFrom(w.lab.Node1.Addr(f), 30053) }},
	} {
		for _, family := range []netns.Family{netns.IPv4, netns.IPv6} {
			t.Run(test.name+" "+family.String(), func(t *testing.T) {
				w := *w
				w.T = t
				do(&w, netns.Probe{From: test.from, To: test.to(family), Protocol: netns.UDP}, a, b)
			})
		}
	}
}

// flows moves a flow from one endpoint to another in every way.
func (w *udpWorld) flows(probe netns.Probe, a, b *netns.Host) {
	tcp := probe
	tcp.Protocol = netns.TCP
	probe.Timeout = 100 * time.Millisecond // so that requests without an answer take little of longestGap
	own := netip.AddrPortFrom(probe.From.Addr(netns.FamilyOf(probe.To.Addr())), 20000)
	live := probe
	live.Source = own

	w.serve(b)
	stays, _ := w.open(live, b)
	w.serve(a)
	flow, _ := w.open(probe, a)
	connection, _ := w.open(tcp, a)
	w.moves(stays, a)

	w.serve(b) // its endpoint leaves
	w.moves(flow, b)
	w.moves(stays, b)

	entry := w.tracked(own)
	other, _ := w.open(probe, b)
	w.serve(a, b)
	leaves, _ := w.open(probe, a)
	w.serve(b) // a sweep, which does not affect the flow to the other endpoint
	w.moves(leaves, b)
	w.moves(stays, b)
	if after := w.tracked(own); len(entry) != 1 || !slices.Equal(after, entry) {
		w.Errorf("entries of the flow that stays: %v, and before %v; want one and the same", after, entry)
	}

	w.serve() // scaled to zero
	w.refused(other)
	w.serve(a) // and back
	w.moves(other, a)
	w.moves(flow, a)

	w.unserve()
	w.serve(b)
	w.moves(other, b)
	w.unserve() // deleted, and created again later
	w.unanswered(flow)
	w.serve(a)
	w.moves(flow, a)

	if answer := connection.Ask(); answer.Verdict != netns.Answered || answer.Endpoint != a.Name {
		w.Errorf("the TCP connection to %s: %s", a.Name, answer)
	}
}

// terminating keeps a flow to an endpoint that terminates, with the annotation, until the endpoint is gone or the annotation is.
func (w *udpWorld) terminating(probe netns.Probe, a, b *netns.Host) {
	probe.Timeout = 100 * time.Millisecond
	preserve := func(s *corev1.Service) {
		s.Annotations = map[string]string{cluster.AnnotationUDPConnectionHandling: "PreserveDuringTermination"}
	}
	opened := func() *netns.Flow {
		w.dead = nil
		w.serveAs(preserve, a)
		flow, _ := w.open(probe, a)
		w.dead = a
		w.serveAs(preserve, a, b)
		w.open(probe, b) // a new flow: the rules are in force
		for range 10 {
			if answer := flow.Ask(); answer.Verdict != netns.Answered || answer.Endpoint != a.Name {
				w.Fatalf("%s while %s terminates: %s", probe, a.Name, answer)
			}
			time.Sleep(50 * time.Millisecond)
		}
		return flow
	}
	flow := opened()
	w.serveAs(preserve, b)
	w.moves(flow, b)
	flow = opened()
	w.serve(a, b) // without the annotation
	w.moves(flow, b)
}

// refused sends requests until one is refused.
func (w *udpWorld) refused(flow *netns.Flow) {
	w.Helper()
	w.becomes(flow, "refused", func(a netns.Answer) bool { return a.Verdict == netns.Refused })
}

// unanswered sends requests until there is neither an answer nor a refusal.
func (w *udpWorld) unanswered(flow *netns.Flow) {
	w.Helper()
	w.becomes(flow, "unanswered", func(a netns.Answer) bool { return a.Verdict != netns.Answered })
}
