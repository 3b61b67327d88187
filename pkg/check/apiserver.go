package check

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// needed are the rights that the proxy uses.
func needed() []Right {
	var all []Right
	for _, r := range []Right{{"", "", "services"}, {"", "discovery.k8s.io", "endpointslices"}, {"", "", "nodes"}, {"", "networking.k8s.io", "servicecidrs"}} {
		all = append(all, Right{"list", r.Group, r.Resource}, Right{"watch", r.Group, r.Resource})
	}
	return append(all, Right{"create", "events.k8s.io", "events"})
}

func rights(ctx context.Context, c *Checker) []Result {
	if c.API == nil {
		return warn("no API server is configured: the rights, the Node and the health check node ports of Services are not checked", "Give --kubeconfig or --config, or leave this out with --skip api.")
	}
	var missing []string
	optional := true
	for _, right := range needed() {
		allowed, err := c.API.Allowed(ctx, right)
		if err != nil {
			return fail("cannot ask the API server: "+err.Error(), "Check the kubeconfig, the network to the API server, and its certificates.")
		}
		if !allowed {
			missing = append(missing, right.Verb+" "+right.Resource)
			optional = optional && (right.Resource == "events" || right.Resource == "servicecidrs")
		}
	}
	const fix = "Bind the ClusterRole system:node-proxier to the proxy's user, usually the ServiceAccount kube-system/kube-proxy."
	switch {
	case len(missing) == 0:
		return ok("the API server allows everything that the proxy reads and writes")
	case optional:
		return warn("the API server does not allow: "+strings.Join(missing, ", "), fix)
	}
	return fail("the API server does not allow: "+strings.Join(missing, ", "), fix)
}

// node compares the Node's addresses with those of the machine.
func node(ctx context.Context, c *Checker) []Result {
	if c.API == nil {
		return nil
	}
	addrs, exists, err := c.API.NodeAddresses(ctx, c.Node.Name)
	switch {
	case err != nil:
		return fail("cannot read the Node "+c.Node.Name+": "+err.Error(), "Check the kubeconfig, the network to the API server, and the rights to get or list Nodes.")
	case !exists:
		return fail("there is no Node "+c.Node.Name, "Set --hostname-override to the name that kubectl get nodes shows.")
	}
	here, err := c.Host.Interfaces()
	if err != nil {
		return fail(err.Error(), "Run the check in the node's network namespace (hostNetwork).")
	}
	var found []Result
	for _, family := range c.Node.Families {
		at := slices.IndexFunc(addrs, func(a netip.Addr) bool { return cluster.FamilyOf(a) == family })
		switch {
		case at < 0 && (len(c.Node.Families) == 1 || len(addrs) == 0):
			found = append(found, warn(fmt.Sprintf("Node %s has no %s address", c.Node.Name, family), "See whether kubelet and the cloud controller manager run, or set nodeIPOverride (--bind-address).")...)
		case at < 0:
			found = append(found, ok(fmt.Sprintf("Node %s has no %s address; it is single-stack", c.Node.Name, family))...)
		case !slices.Contains(here, addrs[at]):
			found = append(found, warn(fmt.Sprintf("address %s of Node %s is not on an interface here: node ports on primary addresses do not get packets to it", addrs[at], c.Node.Name),
				"Run the check on that node. If the address is translated outside, set nodePortAddresses to a CIDR of the interface.")...)
		default:
			found = append(found, ok(fmt.Sprintf("address %s of Node %s is on this machine", addrs[at], c.Node.Name))...)
		}
	}
	return found
}
