package plan

import (
	"cmp"
	"iter"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Claims are the routes of several Services for one frontend, at least two, in order of precedence. The first is served.
type Claims struct {
	Routes cluster.Map[Claim, *Route]
}

// Served returns the route that is served.
func (c *Claims) Served() *Route {
	for route := range c.Routes.Values() {
		return route
	}
	return nil
}

// Lost returns the routes that are not served.
func (c *Claims) Lost() iter.Seq[*Route] {
	return func(yield func(*Route) bool) {
		first := true
		for route := range c.Routes.Values() {
			if !first && !yield(route) {
				return
			}
			first = false
		}
	}
}

// Claim identifies a Service's claim for a frontend. Created is as in cluster.Service.
type Claim struct {
	Kind    Kind
	Created int64
	Service cluster.ServiceName
}

// Compare orders claims by precedence.
func (c Claim) Compare(o Claim) int {
	order, _ := c.precedence(o)
	return order
}

// precedence orders two claims for the same frontend, and returns the rule that decides.
func (c Claim) precedence(o Claim) (order int, rule Precedence) {
	if order := cmp.Compare(c.Kind, o.Kind); order != 0 {
		return order, ByKind
	}
	if order := cmp.Compare(c.Created, o.Created); order != 0 {
		return order, ByAge
	}
	return c.Service.Compare(o.Service), ByName
}

// claim returns the claim that a route of the Service is.
func (s *Service) claim(route *Route) Claim {
	return Claim{Kind: route.Kind, Created: s.Created, Service: route.Service}
}

// Precedence is the rule that selects the served one of two claims for the same frontend.
type Precedence uint8

// The rules, in the order in which they are tried. No two Services have the same name, so the last one always decides.
const (
	// ByKind serves the better kind of address: see Kind.
	ByKind Precedence = iota
	// ByAge serves the Service that was created first.
	ByAge
	// ByName serves the Service whose namespace and name sort first.
	ByName
)

// Why returns the rule by which one route is served rather than another one for the same frontend.
func (p *Plan) Why(served, other *Route) Precedence {
	claim := func(r *Route) Claim {
		service, _ := p.Services.Get(r.Service)
		return service.claim(r)
	}
	_, rule := claim(served).precedence(claim(other))
	return rule
}

// because completes the sentence "the address is served for this Service" with the rule that decided.
func (r Precedence) because(served *Route) string {
	switch r {
	case ByKind:
		return "which has it as its " + served.Kind.String()
	case ByAge:
		return "which is older"
	default:
		return "which is as old and whose name sorts first"
	}
}

// Lost describes why a route is not served, in words for a user. It is empty if the route is served.
func (p *Plan) Lost(route *Route) string {
	served, _ := p.Frontends.Get(route.Frontend)
	if served == route {
		return ""
	}
	return "served for " + served.Name + ", " + p.Why(served, route).because(served)
}

// claim gives a frontend to a route of a Service, unless another claim takes precedence. Its cost does not depend on how many
// Services claim the frontend, except for a logarithm: whoever may write Services can make thousands claim the same one.
func (c *computation) claim(s *Service, route *Route) {
	served, taken := c.frontends.Get(route.Frontend)
	if !taken {
		c.frontends.Set(route.Frontend, route)
		return
	}
	claims, contested := c.contested.Get(route.Frontend)
	if !contested {
		holder, _ := c.services.Get(served.Service)
		claims = &Claims{Routes: cluster.Map[Claim, *Route]{}.Set(holder.claim(served), served)}
	}
	c.decide(route.Frontend, claims.Routes.Set(s.claim(route), route))
}

// withdraw removes the claim of a Service's route and gives the frontend to the next one.
func (c *computation) withdraw(s *Service, route *Route) {
	claims, contested := c.contested.Get(route.Frontend)
	if !contested {
		c.frontends.Delete(route.Frontend)
		return
	}
	c.decide(route.Frontend, claims.Routes.Delete(s.claim(route)))
}

// decide gives a frontend to the first of these claims.
func (c *computation) decide(f Frontend, left cluster.Map[Claim, *Route]) {
	claims := &Claims{Routes: left}
	if left.Len() > 1 {
		c.contested.Set(f, claims)
	} else {
		c.contested.Delete(f)
	}
	c.frontends.Set(f, claims.Served())
}
