package node

import (
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Reason is why a proxy waits, in the words of a metric's label.
type Reason string

// The reasons to wait. While a proxy waits for the API server's first lists it serves nothing; while it waits for any of the
// others it serves what does not depend on them.
const (
	APIServer  Reason = "api_server"
	NodeObject Reason = "node"
	Addresses  Reason = "node_addresses"
	PodCIDRs   Reason = "pod_cidrs"
)

// Reasons returns all reasons to wait.
func Reasons() []Reason { return []Reason{APIServer, NodeObject, Addresses, PodCIDRs} }

// Wait is something that a proxy waits for.
type Wait struct {
	Reason Reason
	// For names it, without the names of any objects: /healthz shows it to everybody.
	For string
	// Hint says what to do if it does not come.
	Hint string
}

// missing returns what a node lacks. The API server must have answered whether its Node exists.
func missing(n *cluster.Node, opts *plan.Options) []Wait {
	if !n.Exists {
		return []Wait{{NodeObject, "the Node object of this node",
			"check that kubelet has registered it; if its name in the API differs, set --hostname-override"}}
	}
	var all []Wait
	if len(n.Addresses) == 0 {
		all = append(all, Wait{Addresses, "the Node's addresses (status.addresses)",
			"check that kubelet (--node-ip) or the cloud controller manager sets them, or set nodeIPOverride (--bind-address)"})
	}
	if opts.NodeCIDR && len(n.PodCIDRs) == 0 {
		all = append(all, Wait{PodCIDRs, "the Node's pod CIDRs (spec.podCIDRs)",
			"detectLocalMode NodeCIDR needs them, and until then all connections to cluster IPs are masqueraded; " +
				"start kube-controller-manager with --allocate-node-cidrs, or choose another detectLocalMode"})
	}
	return all
}
