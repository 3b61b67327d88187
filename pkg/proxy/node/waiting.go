package node

import (
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Reason is why a proxy waits, in the words of a metric's label.
type Reason string

// The reasons to wait. Nothing is served before the API server has listed what there is. For the others everything is
// served that does not depend on them.
const (
	APIServer Reason = "api_server"
	Object    Reason = "node"
	Addresses Reason = "node_addresses"
	PodCIDRs  Reason = "pod_cidrs"
)

// Reasons returns all reasons to wait.
func Reasons() []Reason { return []Reason{APIServer, Object, Addresses, PodCIDRs} }

// Wait is something that a proxy waits for.
type Wait struct {
	Reason Reason
	// For names it, without the names of any objects: /healthz shows it to everybody.
	For string
	// Hint says what to do if it does not come.
	Hint string
}

// missing returns what a node that the API server has been asked about does not have yet.
func missing(n *cluster.Node, opts *plan.Options) []Wait {
	if !n.Exists {
		return []Wait{{Object, "the Node object of this node",
			"see whether kubelet has registered it, and give the name that it has in the API with --hostname-override"}}
	}
	var all []Wait
	if len(n.Addresses) == 0 {
		all = append(all, Wait{Addresses, "the Node's addresses (status.addresses)",
			"they are kubelet's --node-ip or come from the cloud's controller; see whether that runs, or give them with nodeIPOverride (--bind-address)"})
	}
	if opts.NodeCIDR && len(n.PodCIDRs) == 0 {
		all = append(all, Wait{PodCIDRs, "the Node's pod CIDRs (spec.podCIDRs)",
			"detectLocalMode NodeCIDR needs them, and masquerades all connections to cluster IPs until they come; " +
				"start kube-controller-manager with --allocate-node-cidrs, or choose another mode"})
	}
	return all
}
