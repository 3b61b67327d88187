package iptables

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// writer renders what all rules of one family on this node have in common.
type writer struct {
	family       cluster.Family
	node         *plan.Node
	mark         uint32
	capabilities capabilities

	fullMask       netip.Addr
	reject         ipt.Reject
	loopback, cidr netip.Prefix
	// serviceCIDRs are the ranges of cluster IPs in this family, if known.
	serviceCIDRs []netip.Prefix
}

func newWriter(family cluster.Family, node *plan.Node, opts Options, can capabilities) *writer {
	w := &writer{family: family, node: node, mark: opts.Mark, capabilities: can,
		fullMask: netip.AddrFrom4([4]byte{255, 255, 255, 255}), loopback: netip.PrefixFrom(netip.AddrFrom4([4]byte{127}), 8),
		reject: ipt.Unreachable4}
	if family == cluster.IPv6 {
		w.fullMask = netip.MustParseAddr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")
		w.loopback, w.reject = host(netip.IPv6Loopback()), ipt.Unreachable6
	}
	w.cidr, _ = node.LocalTraffic.CIDR(family)
	for _, cidr := range node.ServiceCIDRs {
		if cluster.FamilyOf(cidr.Addr()) == family {
			w.serviceCIDRs = append(w.serviceCIDRs, cidr)
		}
	}
	return w
}

// refusal returns the target of connections without an endpoint; nil if there is an endpoint.
func (w *writer) refusal(v plan.Verdict, of cluster.Protocol) ipt.Target {
	switch {
	case v == plan.Reject && of == cluster.TCP && w.node.ResetTCP:
		return ipt.Reset
	case v == plan.Reject:
		return w.reject
	case v == plan.Drop:
		return ipt.Drop
	default:
		return nil
	}
}

// localInterface returns the interface of local traffic in the syntax of iptables; empty if local traffic is detected
// by addresses.
func (w *writer) localInterface() string {
	name := strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' || strings.ContainsRune(`"'\!/`, r) {
			return '_' // no interface has such a name, and it cannot break a rule
		}
		return r
	}, w.node.LocalTraffic.Interface)
	if stem, wild := strings.CutSuffix(name, "*"); wild {
		name = stem + "+"
	}
	return name
}

// discerns reports whether any packet is of local traffic, or of all other traffic: not if local traffic is not detected, or is
// everything.
func (w *writer) discerns(local bool) bool {
	return w.localInterface() != "" || w.cidr.IsValid() && (w.cidr.Bits() > 0 || local)
}

// localTraffic matches local traffic, or all other traffic, to one destination, or to any if that is invalid.
func (w *writer) localTraffic(is bool, destined netip.Addr) []ipt.Match {
	local, toAddr := source(w.cidr), ipt.Match(nil)
	if destined.IsValid() {
		toAddr = destination(host(destined))
	}
	name := w.localInterface()
	if name != "" {
		local = ipt.In(name)
	}
	if !is {
		local = ipt.Not(local)
	}
	if name != "" {
		return []ipt.Match{toAddr, local}
	}
	return []ipt.Match{local, toAddr}
}

// inServiceCIDR reports whether an address is in the ranges of cluster IPs, if these are known.
func (w *writer) inServiceCIDR(addr netip.Addr) bool {
	return len(w.serviceCIDRs) == 0 || slices.ContainsFunc(w.serviceCIDRs, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// gates matches the ranges of cluster IPs, so that other connections skip their tree. There is at least one.
func (w *writer) gates() (gates []ipt.Match) {
	for _, cidr := range w.serviceCIDRs {
		gates = append(gates, destination(cidr))
	}
	if gates == nil {
		return []ipt.Match{nil}
	}
	return gates
}

// onNode matches packets to the addresses on which node ports are served. Either match may be empty.
type onNode struct {
	address, local ipt.Match
}

// onNode returns one pair of matches if node ports are served on all addresses of this machine, otherwise one for each
// address.
func (w *writer) onNode() (matches []onNode) {
	switch {
	case w.everywhere() && w.localnet():
		return []onNode{{local: ipt.LocalDestination}}
	case w.everywhere():
		return []onNode{{address: ipt.Not(destination(w.loopback)), local: ipt.LocalDestination}}
	}
	for _, addr := range w.node.NodePortAddrs {
		if cluster.FamilyOf(addr) == w.family {
			matches = append(matches, onNode{address: destination(host(addr))})
		}
	}
	return matches
}

// everywhere reports whether node ports are served on all addresses of this machine, not counting loopback addresses.
func (w *writer) everywhere() bool {
	others := slices.DeleteFunc(slices.Clone(w.node.Addrs), func(a netip.Addr) bool { return cluster.FamilyOf(a) != w.family || a.IsLoopback() })
	unserved := func(a netip.Addr) bool { return !slices.Contains(w.node.NodePortAddrs, a) }
	return len(others) > 0 && !slices.ContainsFunc(others, unserved)
}

// localnet reports whether node ports are served on 127.0.0.0/8.
func (w *writer) localnet() bool {
	return slices.ContainsFunc(w.node.NodePortAddrs, func(a netip.Addr) bool {
		return w.family == cluster.IPv4 && a.Is4() && a.IsLoopback()
	})
}
