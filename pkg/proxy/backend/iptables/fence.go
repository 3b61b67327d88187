package iptables

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// The table nat must not drop packets. So a chain of each Service with bounds accepts what exceeds them, before it is translated, and the
// filter table drops new connections that still have the Service's address.

// fence is the bounds of a Service's connections.
type fence struct {
	service cluster.ServiceName
	bounds  cluster.Fence
}

// fence returns the bounds of a port that is served. Where a plan includes a change in part, the first frontend decides for all.
func (p *port) fence() (f fence, bounded bool) {
	first := p.routes[0]
	if first.Fence == nil || !slices.ContainsFunc(p.routes, served) {
		return fence{}, false
	}
	return fence{first.Service, *first.Fence}, true
}

// Compare sorts by Service, then bounds.
func (f fence) Compare(o fence) int {
	return cmp.Or(f.service.Compare(o.service), cmp.Compare(f.bounds.PerSecond, o.bounds.PerSecond), cmp.Compare(f.bounds.Open, o.bounds.Open),
		cmp.Compare(f.bounds.ClientPerSecond, o.bounds.ClientPerSecond), cmp.Compare(f.bounds.ClientOpen, o.bounds.ClientOpen))
}

// chain returns the name of the chain, and of the kernel's list of the Service's rate. Other bounds have another.
func (f fence) chain() string {
	return prefixFirewall + hash(fmt.Sprint("limits of ", f.service, f.bounds))
}

// maxClients is how many clients with a rate the kernel knows of a Service, for a second after their last connection.
const maxClients = 20_000

// rules renders the chain. Rates come first, because the number of open connections takes the kernel a look at each of them. A client that
// exceeds its own rate uses up nothing of the Service's.
func (f fence) rules(addressBits int) (rules []ipt.Rule) {
	add := func(n uint32, above ipt.Match) {
		if n > 0 {
			rules = append(rules, rule(ipt.Accept, comment(f.service.String()+" limits"), above))
		}
	}
	add(f.bounds.ClientPerSecond, ipt.RateAbove{List: f.chain() + "-CLIENT", PerSecond: f.bounds.ClientPerSecond, Clients: maxClients})
	add(f.bounds.PerSecond, ipt.RateAbove{List: f.chain(), PerSecond: f.bounds.PerSecond})
	add(f.bounds.ClientOpen, ipt.OpenAbove{Open: f.bounds.ClientOpen, Bits: addressBits})
	add(f.bounds.Open, ipt.OpenAbove{Open: f.bounds.Open})
	return rules
}

// bound adds n, 1 or -1, to the users of a port's fence.
func (c *composition) bound(p *port, n int) {
	f, bounded := p.fence()
	if !bounded {
		return
	}
	name, users := chainName{tableNAT, f.chain()}, 0
	if users, _ = c.fences.Get(f); users+n == 0 {
		c.fences.Delete(f)
		c.chains.Delete(name)
		return
	}
	c.fences.Set(f, users+n)
	c.put(name, &chain{body: kept(f.rules(c.fullMask.BitLen())), rank: rankFixed})
}

// bounded reports whether the filter table drops new connections to a frontend, which are those that exceed bounds. It cannot if an endpoint
// is the frontend itself: then all of its connections have this destination.
func (w *writer) bounded(r *plan.Route) bool {
	f := r.Frontend
	return r.Fence != nil && r.Verdict == plan.Balance && !slices.ContainsFunc(r.Pool.Endpoints, func(e netip.AddrPort) bool {
		return e.Port() == f.Port && (e.Addr() == f.Addr || f.IsNodePort() && w.node.Has(e.Addr()))
	})
}
