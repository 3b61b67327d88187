package plan

import (
	"net/netip"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// NodePortAddresses selects addresses of this machine. A family without a CIDR is unrestricted.
type NodePortAddresses struct {
	// Primary selects the Node's address of each family, as a CIDR of that address alone would. In a family in which
	// the Node has no address, it selects none. If the machine does not have that address, no node port is served in the family.
	Primary bool
	// CIDRs select the interfaces' addresses within them.
	CIDRs []netip.Prefix
	// Loopback also allows loopback addresses of IPv4 within the CIDRs: IPv6 has no equivalent of route_localnet.
	Loopback bool
}

// The ranges of loopback addresses.
var (
	loopback4 = netip.PrefixFrom(netip.AddrFrom4([4]byte{127}), 8)
	loopback6 = netip.PrefixFrom(netip.IPv6Loopback(), 128)
)

// ParseNodePortAddresses parses the entries of nodePortAddresses: CIDRs, and the keywords primary, localhost (the loopback
// ranges) and all.
func ParseNodePortAddresses(entries []string) (NodePortAddresses, error) {
	var sel NodePortAddresses
	var cidrs []string
	for _, entry := range entries {
		switch entry {
		case "primary":
			sel.Primary = true
		case "localhost":
			cidrs = append(cidrs, loopback4.String(), loopback6.String())
		case "all":
			cidrs = append(cidrs, "0.0.0.0/0", "::/0")
		default:
			cidrs = append(cidrs, entry)
		}
	}
	var err error
	sel.CIDRs, err = cluster.ParsePrefixes(cidrs)
	return sel, err
}

// LoopbackFamilies returns the families whose loopback address, 127.0.0.1 or ::1, is in a selected range of loopback
// addresses. A larger range does not count: it is meant for other addresses.
func (sel *NodePortAddresses) LoopbackFamilies() []cluster.Family {
	var families []cluster.Family
	for _, family := range []cluster.Family{cluster.IPv4, cluster.IPv6} {
		if slices.ContainsFunc(sel.CIDRs, func(cidr netip.Prefix) bool { return isLoopbackRange(cidr, family) }) {
			families = append(families, family)
		}
	}
	return families
}

// isLoopbackRange reports whether a range contains the loopback address of a family and no other than loopback addresses.
func isLoopbackRange(cidr netip.Prefix, family cluster.Family) bool {
	if family == cluster.IPv6 {
		return cidr == loopback6
	}
	return cidr.Contains(loopback4.Addr().Next()) && cidr.Bits() >= loopback4.Bits()
}

// of returns the node's addresses of a family that are selected, sorted.
func (sel *NodePortAddresses) of(node *cluster.Node, family cluster.Family) []netip.Addr {
	var addrs []netip.Addr
	if primary, known := sel.primary(node, family); known && !sel.Elsewhere(node, family) {
		addrs = append(addrs, primary)
	}
	everything := sel.Unrestricted(node, family)
	for _, addr := range node.Interfaces {
		within := func(cidr netip.Prefix) bool { return cidr.Contains(addr) }
		if cluster.FamilyOf(addr) == family && (everything || slices.ContainsFunc(sel.CIDRs, within)) && (sel.Loopback && addr.Is4() || !addr.IsLoopback()) {
			addrs = append(addrs, addr)
		}
	}
	return sortedSet(addrs)
}

// Unrestricted reports whether node ports of a family are served on all addresses of the machine, because no CIDR of the
// family is selected. Whether Primary selects one is not known before the Node has any address: until then the family is
// restricted.
func (sel *NodePortAddresses) Unrestricted(node *cluster.Node, family cluster.Family) bool {
	for _, cidr := range sel.CIDRs {
		if cluster.FamilyOf(cidr.Addr()) == family {
			return false
		}
	}
	_, selected := sel.primary(node, family)
	return !selected && (!sel.Primary || len(node.Addresses) > 0)
}

// Elsewhere reports whether Primary selects an address that this machine does not have. Without any interface, which is how the
// rules of another node are made, it counts as this machine's.
func (sel *NodePortAddresses) Elsewhere(node *cluster.Node, family cluster.Family) bool {
	primary, selected := sel.primary(node, family)
	return selected && len(node.Interfaces) > 0 && !slices.Contains(node.Interfaces, primary)
}

// Everywhere reports whether node ports of a family are served on every address of this machine.
func (sel *NodePortAddresses) Everywhere(family cluster.Family) bool {
	of := func(cidr netip.Prefix) bool { return cluster.FamilyOf(cidr.Addr()) == family }
	whole := func(cidr netip.Prefix) bool { return of(cidr) && cidr.Bits() == 0 }
	return slices.ContainsFunc(sel.CIDRs, whole) || !sel.Primary && !slices.ContainsFunc(sel.CIDRs, of)
}

// primary returns the node's address of a family if Primary selects it. A loopback address is never primary.
func (sel *NodePortAddresses) primary(node *cluster.Node, family cluster.Family) (netip.Addr, bool) {
	addr, known := node.Address(family)
	return addr, sel.Primary && known && !addr.IsLoopback()
}

// localhost returns the loopback address of a family.
func localhost(family cluster.Family) netip.Addr {
	if family == cluster.IPv6 {
		return loopback6.Addr()
	}
	return loopback4.Addr().Next()
}

// ServedOnLoopback returns the protocols of the node ports that are served on a family's loopback address: by the dataplane, or
// by the proxy itself.
func (o *Options) ServedOnLoopback(family cluster.Family) []cluster.Protocol {
	loopback := localhost(family)
	switch machine := (&cluster.Node{Interfaces: []netip.Addr{loopback}}); {
	case slices.Contains(o.NodePorts.of(machine, family), loopback):
		return []cluster.Protocol{cluster.TCP, cluster.UDP, cluster.SCTP}
	case slices.Contains(o.Localhost.Forwarded, family):
		return []cluster.Protocol{cluster.TCP}
	}
	return nil
}

// Localhost configures connections to node ports on loopback addresses that the dataplane does not serve. The zero
// value passes them to local sockets.
type Localhost struct {
	// Reject rejects them, except those in Forwarded.
	Reject bool
	// Forwarded lists the families whose TCP node ports the proxy itself listens on.
	Forwarded []cluster.Family
}

// rejects reports whether connections to a node port are rejected on loopback addresses.
func (l *Localhost) rejects(f Frontend) bool {
	return l.Reject && (f.Protocol != cluster.TCP || !slices.Contains(l.Forwarded, f.Family()))
}

// ForwardedOf returns those of the given families whose TCP node ports the proxy itself listens on.
func (l *Localhost) ForwardedOf(families []cluster.Family) []cluster.Family {
	var forwarded []cluster.Family
	for _, family := range families {
		if slices.Contains(l.Forwarded, family) {
			forwarded = append(forwarded, family)
		}
	}
	return forwarded
}
