package nftables

import (
	"context"
	"errors"
	"iter"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

var _ backend.ConnectionCounter = (*Backend)(nil)

// Connections implements [backend.ConnectionCounter]. It finds the elements of the routes by their keys, in about 4 µs each.
func (b *Backend) Connections(ctx context.Context, family cluster.Family, routes iter.Seq[*plan.Route], endpoints bool) (counts *backend.Connections, err error) {
	err = onTable(family, func(table nft.Table) (err error) {
		counts, err = connections(ctx, table, newSchema(family, b.Counts(family), false), routes, endpoints)
		return err
	})
	return counts, err
}

// Counts implements [backend.ConnectionCounter].
func (b *Backend) Counts(family cluster.Family) backend.Counting {
	if f := b.family(family); f != nil {
		return backend.Counting(f.counts.Load())
	}
	return backend.CountNothing
}

// connections reads the counters of the routes of one family. Connections of remembered clients do not meet an endpoint
// map, so with session affinity an endpoint's counter contains only the first connections of its clients.
func connections(ctx context.Context, table nft.Table, s *schema, routes iter.Seq[*plan.Route], endpoints bool) (*backend.Connections, error) {
	counts, planned := backend.NewConnections(), map[plan.Frontend]*plan.Route{}
	for route := range routes {
		planned[route.Frontend] = route
	}
	var in buffer
	for _, set := range s.sets {
		slots := set.cells != nil && set.cells.slots != nil && len(set.value) > 0
		if !set.counts || set.phase == phaseGuards || slots && !endpoints {
			continue
		}
		for raw, err := range set.read(ctx, table, planned) {
			if errors.Is(err, unix.ENOENT) {
				break // the table does not exist before the first sync
			}
			if err := errors.Join(err, ctx.Err()); err != nil {
				return nil, err
			}
			e, err := set.decode(&raw, &in)
			if err != nil {
				continue // not an element of this proxy
			}
			route := planned[e.frontend]
			if route == nil {
				continue // the element of another route
			}
			switch {
			case slots:
				to := backend.PortEndpoint{Port: route.Name, Protocol: route.Frontend.Protocol, Endpoint: e.endpoint()}
				counts.Endpoints[backend.EndpointCounter{PortEndpoint: to, In: set.name, Frontend: e.frontend}] += raw.Packets
			case set.verdict:
				counts.Frontends[e.frontend] += raw.Packets
			case set.limits:
				counts.Limited[e.frontend] += raw.Packets
			default:
				counts.Refused[e.frontend] += raw.Packets
			}
		}
	}
	return counts, nil
}

// listedFrom and listedTo bound the number of routes for which the elements of a set of frontends are listed. Fewer are found
// by their keys. Listing is several times faster for each element, but its time grows with the square of the set's size.
const (
	listedFrom = 1000
	listedTo   = 20_000
)

// read reads the elements that routes may have in the set, and possibly others.
func (s *set) read(ctx context.Context, table nft.Table, routes map[plan.Frontend]*plan.Route) iter.Seq2[nf.Element, error] {
	if s.cells.slots == nil && len(routes) >= listedFrom && len(routes) <= listedTo {
		return table.Elements(ctx, s.name)
	}
	return table.Find(ctx, s.name, s.keysOf(routes))
}

// keysOf yields the keys of the elements that routes may have in the set, each valid until the next.
func (s *set) keysOf(routes map[plan.Frontend]*plan.Route) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		var in buffer
		for frontend, route := range routes {
			if frontend.IsNodePort() != s.nodePort {
				continue
			}
			of := renderRoute(route)
			for i := range s.cells.count(of) {
				e := element{frontend: frontend}
				if s.cells.get(of, i, &e) && !yield(s.encode(&e, &in).Key) {
					return
				}
			}
		}
	}
}
