package cases

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/iptables"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/nftables"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/pkg/status"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// explanations are the names of verdicts in explanations.
var explanations = map[plan.Verdict]string{
	plan.Balance: v1alpha1.VerdictBalance, plan.Reject: v1alpha1.VerdictReject, plan.Drop: v1alpha1.VerdictDrop, plan.Pass: v1alpha1.VerdictPass,
}

// TestExplainAgreesWithCases asks about every packet of every case, which the kernel tests send too, in both modes: a source that
// is only an IP address is enough unless local traffic is detected by interface, and the explanation ends with the verdict.
func TestExplainAgreesWithCases(t *testing.T) {
	for mode, renderer := range map[string]backend.Renderer{"nftables": nftables.Mode{}, "iptables": iptables.Mode{}} {
		asked, except := 0, 0
		for _, c := range load(t) {
			s := &status.State{Snapshot: c.Snapshot, Plan: c.Plan()}
			s.Rules = status.Rules{Mode: mode, Renderers: map[string]backend.Renderer{mode: renderer}}
			for _, packet := range c.Packets {
				explained(t, s, c, packet.By(mode))
				asked++
				except += len(packet.Except)
			}
		}
		if asked < 200 || except < 5 {
			t.Errorf("only %d packets, and %d exceptions", asked, except)
		}
	}
}

// explained compares the explanation with a packet of a case.
func explained(t *testing.T, s *status.State, c *Case, packet Packet) {
	t.Helper()
	from := Address(packet.From, cluster.FamilyOf(packet.To.Addr())).String()
	if packet.From == Node {
		from = status.FromNode
	}
	question := status.Question{From: from, To: packet.To.String() + "/" + packet.Protocol.String()}
	if s.Plan.Node.LocalTraffic.Interface != "" {
		question.Interface = Arrives(packet.From)
	}
	got, err := s.Explain(question)
	if err != nil {
		t.Errorf("%s, line %d: %v", c.Name, packet.Line, err)
		return
	}
	if slices.Equal(packet.Endpoints, []string{packet.From}) { // hairpin: replies must return through the node
		packet.SeenAs = Node
	}
	seenAs := packet.From
	if got.Masqueraded {
		seenAs = Node
	}
	if got.Verdict != explanations[packet.Verdict] || packet.Verdict == plan.Balance && (len(got.Endpoints) != len(packet.Endpoints) || seenAs != packet.SeenAs) {
		t.Errorf("%s in %s mode, line %d: want %s by %v, seen as %s; got %+v", c.Name, s.Rules.Mode, packet.Line, packet.Verdict, packet.Endpoints, packet.SeenAs, got)
	}
	if last := got.Steps[len(got.Steps)-1].Text; packet.Verdict != plan.Balance && !strings.Contains(last, got.Reason) {
		t.Errorf("%s, line %d: the last step is %q, the reason %q", c.Name, packet.Line, last, got.Reason)
	}
	for _, step := range got.Steps {
		if packet.Verdict == plan.Pass && (strings.HasPrefix(step.Text, "reject: ") || strings.HasPrefix(step.Text, "drop: ")) {
			t.Errorf("%s in %s mode, line %d: passed, but a step is %q", c.Name, s.Rules.Mode, packet.Line, step.Text)
		}
	}
}

// TestExplainOnLocalhost asks in iptables mode for loopback addresses that the plan does not name, and for ::1, which that mode
// never serves; and in nftables mode for those on which the proxy listens.
func TestExplainOnLocalhost(t *testing.T) {
	objects := clusters.Service("default/web", "type: NodePort, clusterIPs: [10.96.0.10, fd00::10], clusterIP: 10.96.0.10, ipFamilies: [IPv4, IPv6], ports: [{port: 80, nodePort: 30080}]") +
		clusters.Slice("default/web", "web-1", "{port: 8080}", "{addresses: [10.244.1.2], conditions: {ready: true}}")
	of, err := Snapshot(objects, cluster.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	node := *of.Node
	node.Interfaces = []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1"), netip.MustParseAddr("172.18.0.11"), netip.MustParseAddr("fd00::1")}
	of.Node = &node
	s := &status.State{Snapshot: of, Plan: plan.Compute(of, &plan.Options{NodePorts: plan.NodePortAddresses{Loopback: true}}, nil),
		Rules: status.Rules{Mode: "iptables", Renderers: map[string]backend.Renderer{"iptables": iptables.Mode{}}}}
	for to, want := range map[string]string{
		"127.0.0.1:30080": v1alpha1.VerdictBalance, "127.0.0.2:30080": v1alpha1.VerdictBalance, "127.0.0.2:30081": v1alpha1.VerdictPass,
		"[::1]:30080": v1alpha1.VerdictPass, "172.18.0.11:30080": v1alpha1.VerdictBalance,
	} {
		if got, err := s.Explain(status.Question{From: status.FromNode, To: to}); err != nil || got.Verdict != want {
			t.Errorf("%s: %+v, %v; want %s", to, got, err, want)
		}
	}
	s.Plan = plan.Compute(of, &plan.Options{Localhost: plan.Localhost{Reject: true, Forwarded: []cluster.Family{cluster.IPv4}}}, nil)
	s.Rules = status.Rules{Mode: "nftables", Renderers: map[string]backend.Renderer{"nftables": nftables.Mode{}}}
	for to, want := range map[string]string{
		"127.0.0.1:30080": "kube-proxy itself listens there, and forwards connections to an endpoint",
		"127.0.0.1:30081": "it is not for a Service", "127.0.0.1:30080/udp": "it is not for a Service",
		"127.0.0.2:30080": "it is not for a Service", "[::1]:30080": "the node port is not served on localhost",
	} {
		if got, err := s.Explain(status.Question{From: status.FromNode, To: to}); err != nil || got.Reason != want {
			t.Errorf("%s: %+v, %v; want %s", to, got, err, want)
		}
	}
}

// TestExplainReceived asks for packets that no host sends: to the node's loopback addresses, and from a cluster IP. In iptables
// mode the latter needs a ServiceCIDR that covers no pods.
func TestExplainReceived(t *testing.T) {
	objects := clusters.Service("default/web", "type: NodePort, clusterIP: 10.96.0.10, ports: [{port: 80, nodePort: 30080}]") +
		clusters.Slice("default/web", "web-1", "{port: 8080}", "{addresses: [10.244.1.2], conditions: {ready: true}}")
	of, err := Snapshot(objects, cluster.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	node := *of.Node
	node.Interfaces = []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("172.18.0.11")}
	of.Node = &node
	pods := plan.LocalTraffic{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}}
	for mode, renderer := range map[string]backend.Renderer{"nftables": nftables.Mode{}, "iptables": iptables.Mode{}} {
		for cidr, forged := range map[string]string{"": v1alpha1.VerdictPass, "10.0.0.0/8": v1alpha1.VerdictPass, "10.96.0.0/16": v1alpha1.VerdictDrop} {
			of.ServiceCIDRs = nil
			if cidr != "" {
				of.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix(cidr)}
			}
			s := &status.State{Snapshot: of, Plan: plan.Compute(of, &plan.Options{LocalTraffic: pods, NodePorts: plan.NodePortAddresses{Loopback: true}}, nil),
				Rules: status.Rules{Mode: mode, Renderers: map[string]backend.Renderer{mode: renderer}}}
			if mode == "nftables" {
				forged = v1alpha1.VerdictDrop
			}
			for question, want := range map[status.Question]string{
				{From: "172.18.0.100", To: "127.0.0.1:30080"}:   v1alpha1.VerdictDrop,
				{From: "10.244.1.3", To: "127.0.0.1:7000"}:      v1alpha1.VerdictDrop,
				{From: status.FromNode, To: "127.0.0.1:30080"}:  v1alpha1.VerdictBalance,
				{From: "10.96.0.10", To: "10.96.0.10:80"}:       forged,
				{From: "10.244.1.3", To: "10.96.0.10:80"}:       v1alpha1.VerdictBalance,
				{From: "172.18.0.100", To: "172.18.0.11:30080"}: v1alpha1.VerdictBalance,
			} {
				if got, err := s.Explain(question); err != nil || got.Verdict != want {
					t.Errorf("%s, ServiceCIDR %q, %+v: %+v, %v; want %s", mode, cidr, question, got, err, want)
				}
			}
		}
	}
}
