package iptables

import (
	"net/netip"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Explain is part of [backend.Renderer]: these rules pass some packets that the plan refuses, and match node ports on other
// loopback addresses. README.md lists the differences.
func (Mode) Explain(p *plan.Plan, packet plan.Packet) plan.Path {
	to := packet.To.Addr()
	w := newWriter(cluster.FamilyOf(to), p.Node, Options{}, capabilities{})
	if to.IsLoopback() && w.localnet() && w.everywhere() {
		packet.To = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), packet.To.Port()) // the rules match them all
	}
	path := p.Explain(packet)
	served := p.RouteTo(packet.To, packet.Protocol)
	switch {
	case path.Loop && len(w.loops()) > 0, to.IsLoopback() && packet.Interface != "":
		return path
	case path.Loop:
		return plan.Passed("iptables mode refuses it only if a ServiceCIDR has the range of cluster IPs, and no pods (" + path.Why + ")")
	case served == nil && (path.Verdict == plan.Reject || path.Verdict == plan.Drop):
		return plan.Passed("in iptables mode no rule matches it (" + path.Why + ")")
	}
	return path
}
