package plan

import (
	"net/netip"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// canaryPort is the port of the canary's frontends. No Service has their addresses, so it has no meaning.
const canaryPort = 10256

// canaryService is what the canary's routes have as their Service. No Service can have such a name.
func canaryService() cluster.ServiceName {
	return cluster.ServiceName{Namespace: "kube-proxy", Name: "CANARY"}
}

// IsCanary reports whether a route is not a Service's but the proxy's own, for testing its rules (Options.Canary).
func (r *Route) IsCanary() bool { return r.Service == canaryService() }

// role says what the route's frontend is.
func (r *Route) role() string {
	if r.IsCanary() {
		return "the canary (--dataplane-canary)"
	}
	return r.Kind.oneOf() + " of " + r.Name
}

// canaries adds the routes of the canary, unless Services have claimed their frontends.
func (c *computation) canaries(node *Node) (all []*Route) {
	for _, route := range c.opts.canaries(c.snapshot.Node, node) {
		if _, taken := c.frontends.Get(route.Frontend); taken {
			continue
		}
		if i := slices.IndexFunc(c.before.Canary, route.equal); i >= 0 {
			route = c.before.Canary[i]
		}
		c.frontends.Set(route.Frontend, route)
		all = append(all, route)
	}
	return all
}

// canaries returns a route to each listener of the canary, from a cluster IP that no Service has: the first address of the ranges of
// its family, which API servers do not allocate. The kernel routes it as any cluster IP. There is none while the ranges are unknown.
func (o *Options) canaries(of *cluster.Node, node *Node) (routes []*Route) {
	for _, listener := range o.Canary {
		var first netip.Addr
		for _, cidr := range node.ServiceCIDRs {
			if addr := cidr.Masked().Addr(); addr.Is4() == listener.Addr().Is4() && (!first.IsValid() || addr.Less(first)) {
				first = addr
			}
		}
		if first.IsValid() {
			routes = append(routes, &Route{
				Frontend: Frontend{Addr: first, Protocol: cluster.TCP, Port: canaryPort}, Kind: ClusterIP,
				Service: canaryService(), Name: canaryService().String(),
				Pool: &Pool{Endpoints: []netip.AddrPort{listener}, Reason: AllReady}, Masquerade: o.masqueradeInternal(of), Verdict: Balance,
			})
		}
	}
	return routes
}
