package plan

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Options are the user's settings. They must not be modified once used.
type Options struct {
	// NodePorts selects the addresses on which node ports are served.
	NodePorts NodePortAddresses
	// Localhost configures node ports on loopback addresses that NodePorts does not select.
	Localhost Localhost
	// LocalTraffic detects connections from local pods. With NodeCIDR, the node's own pod CIDRs do; until these are
	// known, all connections to cluster IPs are masqueraded (docs/decisions/0017).
	LocalTraffic LocalTraffic
	NodeCIDR     bool
	// SingleStack serves only the family of the node's primary address, and both families until that is known.
	SingleStack bool
	// Families are those that this node can serve; none means both.
	Families []cluster.Family
	// MasqueradeAll masquerades every connection to a cluster IP.
	MasqueradeAll bool
	// Limits bounds the rules of one Service.
	Limits Limits
	// ServeExternalIPs serves spec.externalIPs, which no controller has confirmed (CVE-2020-8554).
	ServeExternalIPs bool
	// KeepTerminatingUDPFlows lets UDP flows stay with terminating endpoints of Services that ask for it (KEP-5989).
	KeepTerminatingUDPFlows bool
	// ResetGoneEndpoints resets TCP connections to endpoints that no EndpointSlice lists any more: see Node.ResetTCP.
	ResetGoneEndpoints bool
	// Balancing selects which annotations about load balancing are honoured.
	Balancing Balancing
	// Fences bound the connections of Services.
	Fences Fences
	// FastPath lets long connections take the fast path.
	FastPath FastPath
	// Canary are listeners of the proxy itself, at most one of each family, to which it connects through its own rules.
	Canary []netip.AddrPort
}

// FastPath selects the Services with a fast path if On is set: those that ask for it, and with All also those without the annotation.
type FastPath struct{ On, All bool }

// Limits bounds the rules of one Service: its last ports are not served if there would be more. The zero value bounds nothing.
type Limits struct {
	// Elements is how many there may be, approximately: endpoints and source ranges, for each frontend. If EndpointsShared is set, the
	// frontends of a port share the rules of its endpoints. An endpoint then counts once for each family, or as two with session affinity,
	// and as three more if it may be on this node (HairpinAddrs), because it needs more rules.
	Elements        int
	EndpointsShared bool
	// Endpoints is how many endpoints a port may have in a family, SourceRanges how many source ranges the Service may have; 0 is no
	// limit.
	Endpoints, SourceRanges int
}

// LocalTraffic detects connections from this node's pods (or, by CIDR, from the cluster's). At most one of its fields
// is set; the zero value detects nothing.
type LocalTraffic struct {
	// CIDRs are the source ranges of local pods, at most one of each family.
	CIDRs []netip.Prefix
	// Interface is the input interface of local pods' packets; a name that ends in * matches a prefix.
	Interface string
}

func (l LocalTraffic) equal(o LocalTraffic) bool {
	return l.Interface == o.Interface && slices.Equal(l.CIDRs, o.CIDRs)
}

// Detects reports whether local connections of the family can be detected.
func (l LocalTraffic) Detects(family cluster.Family) bool {
	_, ok := l.CIDR(family)
	return ok || l.Interface != ""
}

// CIDR returns the range of local pods in a family.
func (l LocalTraffic) CIDR(family cluster.Family) (netip.Prefix, bool) {
	for _, cidr := range l.CIDRs {
		if cluster.FamilyOf(cidr.Addr()) == family {
			return cidr, true
		}
	}
	return netip.Prefix{}, false
}

// Is reports whether a packet with this source and input interface is local traffic. The node's own packets have no
// input interface and match only by CIDR.
func (l LocalTraffic) Is(source netip.Addr, arrived string) bool {
	if prefix, wild := strings.CutSuffix(l.Interface, "*"); l.Interface != "" {
		return arrived == l.Interface || wild && arrived != "" && strings.HasPrefix(arrived, prefix)
	}
	cidr, ok := l.CIDR(cluster.FamilyOf(source))
	return ok && cidr.Contains(source)
}

// Serves reports whether a family is served on a node.
func (o *Options) Serves(node *cluster.Node, family cluster.Family) bool {
	return o.Wants(node, family) && (o.Families == nil || slices.Contains(o.Families, family))
}

// Wants reports whether a family is served on a node if it can be.
func (o *Options) Wants(node *cluster.Node, family cluster.Family) bool {
	primary, known := node.Primary()
	return !o.SingleStack || !known || family == primary
}

// podCIDRsUnknown reports whether local traffic is to be detected by pod CIDRs that the node does not have yet.
func (o *Options) podCIDRsUnknown(node *cluster.Node) bool {
	return o.NodeCIDR && len(node.PodCIDRs) == 0
}

// sameForServices reports whether two versions of the node lead to the same decisions about every Service.
func sameForServices(a, b *cluster.Node) bool {
	return a.Zone == b.Zone && slices.Equal(a.Addresses, b.Addresses) && slices.Equal(a.PodCIDRs, b.PodCIDRs)
}

// decideNode computes the settings that apply to the node as a whole.
func decideNode(snap *cluster.Snapshot, opts *Options) *Node {
	node := &Node{
		LocalTraffic: opts.LocalTraffic,
		Addrs:        snap.Node.Interfaces,
		Forwarded:    opts.Localhost.Forwarded,
		ResetTCP:     opts.ResetGoneEndpoints,
	}
	for _, family := range []cluster.Family{cluster.IPv4, cluster.IPv6} {
		if opts.Serves(snap.Node, family) {
			node.NodePortAddrs = append(node.NodePortAddrs, opts.NodePorts.of(snap.Node, family)...)
		}
	}
	if opts.FastPath.On {
		node.Devices = snap.Node.Devices
	}
	for _, cidr := range snap.ServiceCIDRs {
		if opts.Serves(snap.Node, cluster.FamilyOf(cidr.Addr())) {
			node.ServiceCIDRs = append(node.ServiceCIDRs, cidr)
		}
	}
	if opts.NodeCIDR {
		node.LocalTraffic.CIDRs = snap.Node.PodCIDRs
	}
	return node
}
