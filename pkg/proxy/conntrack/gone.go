package conntrack

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"time"

	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/conntrack"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

const (
	// maxResets is how many TCP connections are reset before a pause of resetPause, each family having the same share: their clients
	// connect again at once.
	maxResets  = 10_000
	resetPause = time.Second
	// moves is how long no EndpointSlice may list an endpoint before it is gone: two writes move it from one slice to another.
	moves = 500 * time.Millisecond
)

// Resets ends TCP connections to endpoints that no EndpointSlice lists any more. Their entries are deleted, so that the client's next
// packet is a new one: it reaches another endpoint, which resets it, or is rejected (plan.Node.ResetTCP). This node's own sockets are
// aborted at once. The entries of SCTP associations to such endpoints are deleted too.
type Resets struct {
	// Abort ends the connection of a socket in this network namespace. Its error is fs.ErrNotExist if there is no such socket.
	Abort func(client, server netip.AddrPort) error
	// Done is called with the number of connections that a sweep reset. It must not block.
	Done func(family cluster.Family, connections int)
}

// burst counts what was reset since the last line in the log.
type burst struct {
	connections, sockets int
	example              conntrack.Flow
	// due is when to log it; nil if there is nothing.
	due <-chan time.Time
	// limited is whether there were too many since the last pause.
	limited bool
}

// log logs the burst, and begins another one.
func (b *burst) log(ctx context.Context) {
	klog.FromContext(ctx).Info("Reset TCP connections to endpoints that no EndpointSlice lists any more", "connections", b.connections,
		"ownSockets", b.sockets, "exampleClient", b.example.Source, "exampleService", b.example.Destination, "exampleEndpoint", b.example.ReplySource)
	b.connections, b.sockets, b.due = 0, 0, nil
}

// resets returns the TCP connections to endpoints that left, after it has aborted this node's own ends.
func (r *Reconciler) resets(ctx context.Context, family cluster.Family, left map[netip.Addr]bool) func(*conntrack.Flow) bool {
	lost := r.lost(family, cluster.TCP)
	share := maxResets / len(r.config.Families)
	return func(flow *conntrack.Flow) bool {
		if share < 0 || !left[flow.ReplySource.Addr()] || !lost(flow) {
			return false
		}
		if share--; share < 0 {
			r.burst.limited = true
			r.addLocked(family, work{left: left})
			return false
		}
		r.burst.example = *flow
		if now, _ := r.current(family); now.Node.Has(flow.Source.Addr()) {
			r.abort(ctx, flow)
		}
		return true
	}
}

// abort ends this node's own end of a connection, if it is in this network namespace.
func (r *Reconciler) abort(ctx context.Context, flow *conntrack.Flow) {
	switch err := r.config.Resets.Abort(flow.Source, flow.Destination); {
	case err == nil:
		r.burst.sockets++
	case !errors.Is(err, fs.ErrNotExist) && r.aborting.Changed(""):
		klog.FromContext(ctx).Error(err, "Cannot abort this node's own connections to endpoints that are gone; they end with their next packet")
	}
}

// done counts what a sweep has reset.
func (r *Reconciler) done(family cluster.Family, connections int) {
	if connections == 0 {
		return
	}
	r.config.Resets.Done(family, connections)
	r.burst.connections += connections
	if r.burst.due == nil {
		r.burst.due = time.After(calm)
	}
}

// lost returns a function that reports whether a connection to a Service goes to an address that no EndpointSlice lists.
func (r *Reconciler) lost(family cluster.Family, protocol cluster.Protocol) func(*conntrack.Flow) bool {
	var here, soon listing
	return func(flow *conntrack.Flow) bool {
		inForce, next := r.current(family)
		endpoint := flow.ReplySource.Addr()
		return inForce.RouteTo(flow.Destination, protocol) != nil && !here.has(inForce, endpoint) && (next == inForce || !soon.has(next, endpoint))
	}
}

// listing remembers which addresses a plan lists: to find out takes a search of all endpoints.
type listing struct {
	plan  *plan.Plan
	lists map[netip.Addr]bool
}

func (l *listing) has(p *plan.Plan, addr netip.Addr) bool {
	if l.plan != p {
		l.plan, l.lists = p, map[netip.Addr]bool{}
	}
	lists, known := l.lists[addr]
	if !known {
		lists = p.Lists(addr)
		l.lists[addr] = lists
	}
	return lists
}
