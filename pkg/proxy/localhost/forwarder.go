// Package localhost serves TCP node ports on the loopback addresses for backends that cannot: translated packets would leave
// the machine with a source of 127.0.0.1. A Forwarder, an observer of the proxy's loop,
// listens there itself and forwards connections to the endpoints of the external traffic policy. It is for processes on
// this machine, such as a container runtime that pulls images from a registry in the cluster; it is slower than the
// kernel, and endpoints see the node as the client. With policy Local only endpoints on this node are used (as by Kubernetes' kube-proxy 1.37.2),
// although rules send the node's own connections to any: see plan.Route.ShortCut.
package localhost

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/logonce"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// retryPeriod is the time between attempts to listen on ports that are in use.
const retryPeriod = 30 * time.Second

// Config configures a Forwarder.
type Config struct {
	// Families are the families whose node ports are served on the loopback address.
	Families []cluster.Family
	// MaxConnections bounds the connections of all ports together, which have two file descriptors each. Additional ones wait to
	// be accepted.
	MaxConnections int
	// Listening is called with the number of listeners of a family after each change, ListenFailed for each failed
	// attempt to listen on a port. They must not block.
	Listening    func(family cluster.Family, listeners int)
	ListenFailed func(family cluster.Family)
}

// Forwarder serves node ports on loopback addresses. It is a proxy.Observer. The cost of Synced is proportional to
// the change; Run does the work.
type Forwarder struct {
	proxy.Ignore
	config Config
	wake   chan struct{}
	slots  chan struct{} // contains a value for each connection

	mu sync.Mutex
	// pending holds the frontends that Run has not applied yet; nil removes the listener.
	pending map[plan.Frontend]*plan.Route
}

var _ proxy.Observer = (*Forwarder)(nil)

// New returns a Forwarder; Run starts it.
func New(config Config) *Forwarder {
	return &Forwarder{config: config, wake: make(chan struct{}, 1), slots: make(chan struct{}, config.MaxConnections),
		pending: map[plan.Frontend]*plan.Route{}}
}

// Synced records which node ports have changed.
func (f *Forwarder) Synced(s *proxy.Sync) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for frontend, change := range s.Changes.Frontends {
		if !frontend.IsNodePort() || frontend.Protocol != cluster.TCP {
			continue
		}
		f.pending[frontend] = nil
		if change.Is && change.After.Verdict == plan.Balance {
			f.pending[frontend] = change.After
		}
	}
	if len(f.pending) > 0 {
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
}

// loopback returns the address on which node ports of a family are served.
func loopback(family cluster.Family) netip.Addr {
	if family == cluster.IPv6 {
		return netip.IPv6Loopback()
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

// Run listens until ctx ends, and then closes all connections.
func (f *Forwarder) Run(ctx context.Context) error {
	p := &ports{forwarder: f, listeners: map[plan.Frontend]*listener{}, failed: map[plan.Frontend]*plan.Route{}}
	defer p.close()
	retry := time.NewTicker(retryPeriod)
	defer retry.Stop()
	for {
		var work map[plan.Frontend]*plan.Route
		select {
		case <-ctx.Done():
			return nil
		case <-f.wake:
			f.mu.Lock()
			work, f.pending = f.pending, map[plan.Frontend]*plan.Route{}
			f.mu.Unlock()
		case <-retry.C:
			work = maps.Clone(p.failed)
		}
		for _, family := range f.config.Families {
			for frontend, route := range work {
				if frontend.Family() == family {
					p.apply(ctx, frontend, route)
				}
			}
			f.config.Listening(family, p.count(family))
		}
	}
}

// ports are the node ports that Run serves.
type ports struct {
	forwarder *Forwarder
	listeners map[plan.Frontend]*listener
	// failed holds the frontends without a listener, failing what has been logged about them.
	failed  map[plan.Frontend]*plan.Route
	failing logonce.Conditions[plan.Frontend]
}

func (p *ports) close() {
	for _, l := range p.listeners {
		l.close()
	}
}

// count returns the number of listeners of a family.
func (p *ports) count(family cluster.Family) int {
	n := 0
	for frontend := range p.listeners {
		if frontend.Family() == family {
			n++
		}
	}
	return n
}

// apply updates the listener of one node port to a route; nil closes it.
func (p *ports) apply(ctx context.Context, frontend plan.Frontend, route *plan.Route) {
	delete(p.failed, frontend)
	l := p.listeners[frontend]
	switch {
	case route == nil && l != nil:
		l.close()
		delete(p.listeners, frontend)
	case route == nil:
		p.failing.Ended(frontend)
	case l != nil && l.route.Load().Service == route.Service:
		l.route.Store(route)
	default:
		if l != nil { // of another Service: its connections are closed
			l.close()
			delete(p.listeners, frontend)
		}
		address := net.JoinHostPort(loopback(frontend.Family()).String(), strconv.Itoa(int(frontend.Port)))
		socket, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err != nil {
			p.failed[frontend] = route
			p.forwarder.config.ListenFailed(frontend.Family())
			if p.failing.Changed(frontend, "") {
				klog.FromContext(ctx).Error(fmt.Errorf("cannot serve node port %d of %s on %s; free the port, or remove localhost from nodePortAddresses: %w",
					frontend.Port, route.Name, address, err), "Failed to listen on a node port on localhost", "retryIn", retryPeriod)
			}
			return
		}
		if p.failing.Ended(frontend) {
			klog.FromContext(ctx).Info("Listening on a node port on localhost again", "port", route.Name, "address", address)
		}
		p.listeners[frontend] = listen(ctx, socket, route, p.forwarder.slots)
	}
}
