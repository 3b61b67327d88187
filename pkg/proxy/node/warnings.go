package node

import (
	"net/netip"
	"slices"

	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// warning is something that a user may not expect, and what to do about it. Family is 0 if it is not about one.
type warning struct {
	message string
	family  cluster.Family
	hint    string
}

func (w warning) log(logger klog.Logger) {
	if w.family != 0 {
		logger = logger.WithValues("family", w.family)
	}
	logger.Info(w.message, "hint", w.hint)
}

// configured returns the warnings about a configuration that hold on any node. nodePortsByDefault is whether the
// configuration leaves the addresses of node ports to the default.
func configured(opts *plan.Options, nodePortsByDefault bool) []warning {
	var all []warning
	if local := &opts.LocalTraffic; !opts.NodeCIDR && len(local.CIDRs) == 0 && local.Interface == "" {
		all = append(all, warning{message: "Local traffic is not detected, because there is no cluster CIDR: connections from outside the cluster to cluster IPs are not masqueraded",
			hint: "set --cluster-cidr (detectLocal.clusterCIDRs) to the range of the pods' addresses, or choose another detectLocalMode"})
	}
	if nodePortsByDefault && !opts.NodePorts.Primary {
		all = append(all, warning{message: "Node ports are served on all addresses of this machine, which is the default of this mode",
			hint: "set --nodeport-addresses (nodePortAddresses) to primary to serve them on the Node's addresses only, or to all if this is intended"})
	}
	return all
}

// observed returns the warnings about a node. nodePorts are the families in which there are node ports, hinted is whether there
// are endpoints with zone hints.
func observed(n *cluster.Node, opts *plan.Options, nodePorts map[cluster.Family]bool, hinted bool) []warning {
	var all []warning
	if n.Exists && n.Zone == "" && hinted {
		all = append(all, warning{message: "The Node has no zone, so the zone hints of EndpointSlices are ignored and connections may leave the zone",
			hint: "give the Node the label topology.kubernetes.io/zone"})
	}
	reachable := slices.ContainsFunc(n.Interfaces, usable)
	if !reachable {
		all = append(all, warning{message: "This machine has no addresses but loopback and link-local ones, so no other machine can reach node ports",
			hint: "check its network interfaces, and that kube-proxy runs in the host's network namespace"})
	}
	for _, family := range []cluster.Family{cluster.IPv4, cluster.IPv6} {
		if !opts.Serves(n, family) {
			continue
		}
		if nodePorts[family] && opts.NodePorts.Primary && opts.NodePorts.Unrestricted(n, family) {
			all = append(all, warning{message: "Node ports of an IP family are served on all addresses of this machine, because the Node has no address of the family", family: family,
				hint: "give the Node an address of the family (kubelet's --node-ip), or set --nodeport-addresses (nodePortAddresses) to CIDRs of both families"})
		}
		if reachable && nodePorts[family] && opts.NodePorts.Elsewhere(n, family) {
			all = append(all, warning{message: "Node ports of an IP family are not served on the Node's address, because this machine does not have it", family: family,
				hint: "check kubelet's --node-ip and nodeIPOverride (--bind-address), or set --nodeport-addresses (nodePortAddresses) to CIDRs"})
		}
		if _, has := n.Address(family); !has {
			continue
		}
		if local := &opts.LocalTraffic; len(local.CIDRs) > 0 && !local.Detects(family) {
			all = append(all, warning{message: "The Node has an IP family without a cluster CIDR: connections from outside the cluster to cluster IPs of the family are not masqueraded", family: family,
				hint: "add one to --cluster-cidr (detectLocal.clusterCIDRs)"})
		}
		if ranges := (plan.LocalTraffic{CIDRs: n.PodCIDRs}); opts.NodeCIDR && len(n.PodCIDRs) > 0 && !ranges.Detects(family) {
			all = append(all, warning{message: "The Node has an IP family without a pod CIDR: connections from outside the cluster to cluster IPs of the family are not masqueraded", family: family,
				hint: "allocate pod CIDRs of both families (kube-controller-manager's --cluster-cidr), or choose another detectLocalMode"})
		}
	}
	return all
}

// usable reports whether other machines may reach an address.
func usable(addr netip.Addr) bool { return !addr.IsLoopback() && !addr.IsLinkLocalUnicast() }
