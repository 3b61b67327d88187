package plan

import (
	"cmp"
	"slices"
	"time"
)

// Claims are the routes of several Services for one frontend, in order of precedence. The first is served.
type Claims struct {
	Routes []*Route
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
	created := func(r *Route) time.Time {
		service, _ := p.Services.Get(r.Service)
		return service.Created
	}
	_, rule := precedence(served, other, created)
	return rule
}

// precedence orders two claims for the same frontend, and returns the rule that decides.
func precedence(a, b *Route, created func(*Route) time.Time) (order int, rule Precedence) {
	if order := cmp.Compare(a.Kind, b.Kind); order != 0 {
		return order, ByKind
	}
	if order := created(a).Compare(created(b)); order != 0 {
		return order, ByAge
	}
	return a.Service.Compare(b.Service), ByName
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

// claim gives a frontend to a route, unless another claim takes precedence.
func (c *computation) claim(route *Route) {
	served, taken := c.frontends.Get(route.Frontend)
	if !taken {
		c.frontends.Set(route.Frontend, route)
		return
	}
	claims := &Claims{Routes: []*Route{served}}
	if contested, ok := c.contested.Get(route.Frontend); ok {
		claims.Routes = slices.Clone(contested.Routes)
	}
	claims.Routes = append(claims.Routes, route)
	slices.SortFunc(claims.Routes, func(a, b *Route) int {
		order, _ := precedence(a, b, c.created)
		return order
	})
	c.contested.Set(route.Frontend, claims)
	c.frontends.Set(route.Frontend, claims.Routes[0])
}

// withdraw removes a route's claim and gives the frontend to the next one.
func (c *computation) withdraw(route *Route) {
	contested, ok := c.contested.Get(route.Frontend)
	if !ok {
		c.frontends.Delete(route.Frontend)
		return
	}
	left := slices.DeleteFunc(slices.Clone(contested.Routes), func(r *Route) bool { return r == route })
	if len(left) > 1 {
		c.contested.Set(route.Frontend, &Claims{Routes: left})
	} else {
		c.contested.Delete(route.Frontend)
	}
	c.frontends.Set(route.Frontend, left[0])
}

// created is when the Service of a route was created.
func (c *computation) created(route *Route) time.Time {
	service, _ := c.services.Get(route.Service)
	return service.Created
}
