package ipvs

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipvs"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Drain is a [backend.Drain]. ip_vs translates packets to its virtual servers after routing, if the address is the machine's
// own. So a connection needs its server, which other connections no longer reach, and its address. What cannot be found out about a
// server or an address counts as use.
func (m Mode) Drain(ctx context.Context, last backend.Left, families ...cluster.Family) (left backend.Left, err error) {
	if len(families) == 1 {
		return nil, nil
	}
	found, err := m.look()
	if err != nil {
		return last, err
	}
	if !found.device {
		return nil, m.removeAll(ctx, found)
	}
	u := m.use(ctx, found)
	switch {
	case ctx.Err() != nil:
		return last, ctx.Err()
	case last != nil && u.exceeds(last, found):
		return nil, backend.ErrRival
	}
	left = backend.Left{}
	failed := []error{u.failed, m.quiesce(ctx, u, left), m.sockets(ctx, found, u.addrs)}
	for _, s := range found.servers {
		if ctx.Err() != nil {
			return last, ctx.Err()
		}
		if !u.addrs[s.Addr.Addr()] {
			err := m.Objects.DeleteServer(s)
			if err == nil {
				continue
			}
			failed, u.addrs[s.Addr.Addr()] = append(failed, err), true
		}
		left[s.String()] = true
	}
	if len(u.addrs) == 0 {
		found.servers = nil
		return nil, errors.Join(append(failed, m.removeAll(ctx, found))...)
	}
	for _, addr := range found.addrs {
		if ctx.Err() != nil {
			return last, ctx.Err()
		}
		if !u.addrs[addr] {
			err := m.Objects.DeleteAddr(device, addr)
			if err == nil {
				continue
			}
			failed, u.addrs[addr] = append(failed, err), true
		}
		left[addr.String()] = true
	}
	return left, errors.Join(append(failed, m.Objects.DeleteRoutes(u.addrs))...)
}

// use is what connections use of the leftovers.
type use struct {
	// addrs are the addresses of servers with connections, and of the machine's own connections to servers.
	addrs map[netip.Addr]bool
	// open are the destinations that new connections reach.
	open []open
	// failed is the first error.
	failed error
}

type open struct {
	server      ipvs.Server
	destination ipvs.Destination
}

// name is the name of an object that is left if it cannot be changed.
func (o open) name() string { return o.server.String() + " to " + o.destination.Addr.String() }

// use looks at the servers.
func (m Mode) use(ctx context.Context, found leftovers) use {
	u := use{addrs: map[netip.Addr]bool{}}
	for _, s := range found.servers {
		if ctx.Err() != nil {
			break
		}
		destinations, err := m.Objects.Destinations(s)
		if err != nil {
			u.addrs[s.Addr.Addr()], u.failed = true, cmp.Or(u.failed, err)
		}
		for _, d := range destinations {
			if d.Weight > 0 {
				u.open = append(u.open, open{s, d})
			}
			if d.Connections > 0 {
				u.addrs[s.Addr.Addr()] = true
			}
		}
	}
	return u
}

// exceeds reports whether there is more than the last call has left.
func (u use) exceeds(last backend.Left, found leftovers) bool {
	return slices.ContainsFunc(u.open, func(o open) bool { return !last[o.name()] }) ||
		slices.ContainsFunc(found.servers, func(s ipvs.Server) bool { return !last[s.String()] }) ||
		slices.ContainsFunc(found.addrs, func(a netip.Addr) bool { return !last[a.String()] })
}

// quiesce keeps new connections from all destinations. It adds those that it cannot change to left, and returns the first error.
func (m Mode) quiesce(ctx context.Context, u use, left backend.Left) (failed error) {
	for _, o := range u.open {
		if ctx.Err() != nil {
			break
		}
		if err := m.Objects.Quiesce(o.server, o.destination); err != nil {
			left[o.name()], failed = true, cmp.Or(failed, err)
		}
	}
	return failed
}

// sockets adds the addresses that sockets of this machine have to used: the address of a server was also the source of the machine's own
// connections to it, and is not of new ones. An address that another device has too remains the machine's own without this one.
func (m Mode) sockets(ctx context.Context, found leftovers, used map[netip.Addr]bool) error {
	only := slices.DeleteFunc(slices.Clone(found.addrs), func(a netip.Addr) bool { return slices.Contains(found.elsewhere, a) })
	failed := m.Objects.SetSource(ctx, device, only)
	bound, err := m.Objects.Bound()
	for _, addr := range only {
		if err != nil || bound[addr] {
			used[addr] = true
		}
	}
	return errors.Join(failed, err)
}
