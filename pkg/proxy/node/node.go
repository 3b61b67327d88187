// Package node tells who this node is, and that it no longer is who it was.
//
// Which address families are served, and what local traffic is, follows from the Node object; so the proxy is put
// together when that is known (Await), and ends, to be started anew, when it has become another one (Watch, an
// observer of the proxy's loop).
package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

const (
	// patience is how long to wait in all: a cloud's controllers may take minutes to give a new node its addresses.
	// The time between looks doubles from soon, since most nodes are known within milliseconds of the start, to period.
	patience = 5 * time.Minute
	soon     = time.Millisecond
	period   = time.Second
)

// Identity is what a node must not change while a proxy runs on it.
type Identity struct {
	Name string
	// Addresses is the first one of each family, the primary family's first.
	Addresses []netip.Addr
	// PodCIDRs are set where they matter only.
	PodCIDRs []netip.Prefix
}

// Of is the identity that a node shows. needPodCIDRs tells that its pod CIDRs matter.
func Of(n *cluster.Node, needPodCIDRs bool) Identity {
	identity := Identity{Name: n.Name}
	for _, addr := range n.Addresses {
		if !slices.ContainsFunc(identity.Addresses, func(a netip.Addr) bool { return a.Is4() == addr.Is4() }) {
			identity.Addresses = append(identity.Addresses, addr)
		}
	}
	if needPodCIDRs {
		identity.PodCIDRs = n.PodCIDRs
	}
	return identity
}

// Primary is the family of the node's primary address: IPv4 where it has none at all.
func (i Identity) Primary() cluster.Family {
	if len(i.Addresses) == 0 {
		return cluster.IPv4
	}
	return cluster.FamilyOf(i.Addresses[0])
}

// Await looks again and again, for five minutes, until the node's object exists, has addresses, and pod CIDRs where they
// are needed. The error says what was still missing then; it is that of ctx if ctx ends first.
func Await(ctx context.Context, snapshot func() *cluster.Snapshot, needPodCIDRs bool) (Identity, error) {
	logger := klog.FromContext(ctx)
	deadline := time.Now().Add(patience)
	told := ""
	for pause := soon; ; pause = min(2*pause, period) {
		node := snapshot().Node
		missing := lacks(node, needPodCIDRs)
		if missing == "" {
			return Of(node, needPodCIDRs), nil
		}
		if !time.Now().Before(deadline) {
			return Identity{}, fmt.Errorf("the Node %q %s after %s of waiting; give the name that it has in the API with --hostname-override, "+
				"and look whether kubelet and the cloud's controllers have registered it", node.Name, missing, patience)
		}
		if missing != told {
			logger.Info("Waiting for this node's object", "node", node.Name, "because", missing)
			told = missing
		}
		select {
		case <-ctx.Done():
			return Identity{}, ctx.Err()
		case <-time.After(min(pause, time.Until(deadline))):
		}
	}
}

// lacks tells what is missing of a node.
func lacks(n *cluster.Node, needPodCIDRs bool) string {
	switch {
	case !n.Exists:
		return "is not known to the API server"
	case len(n.Addresses) == 0:
		return "has neither an InternalIP nor an ExternalIP"
	case needPodCIDRs && len(n.PodCIDRs) == 0:
		return "has no spec.podCIDRs, which the local traffic mode NodeCIDR goes by"
	}
	return ""
}

// Watch ends a proxy whose node has become another one. It is a proxy.Observer.
type Watch struct {
	was     Identity
	changed chan error
}

// NewWatch makes a Watch of the node that the proxy was put together for.
func NewWatch(was Identity) *Watch {
	return &Watch{was: was, changed: make(chan error, 1)}
}

// Run returns an error that says what has changed, or nil when ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	select {
	case err := <-w.changed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// Queued does nothing.
func (w *Watch) Queued(time.Time) {}

// Drifted does nothing.
func (w *Watch) Drifted(backend.Drift) {}

// Synced looks at the node.
func (w *Watch) Synced(s *proxy.Sync) {
	if err := w.compare(s.After.Node); err != nil {
		select {
		case w.changed <- err:
		default: // one reason is enough
		}
	}
}

// compare tells what has changed. An object that lists no addresses says nothing about them.
func (w *Watch) compare(n *cluster.Node) error {
	now := Of(n, len(w.was.PodCIDRs) > 0)
	var what error
	switch {
	case !n.Exists:
		what = errors.New("has been deleted")
	case len(now.Addresses) > 0 && !slices.Equal(now.Addresses, w.was.Addresses):
		what = fmt.Errorf("has other addresses: %v, and had %v", now.Addresses, w.was.Addresses)
	case !slices.Equal(now.PodCIDRs, w.was.PodCIDRs):
		what = fmt.Errorf("has other pod CIDRs: %v, and had %v", now.PodCIDRs, w.was.PodCIDRs)
	default:
		return nil
	}
	return fmt.Errorf("the Node %q %w; ending, to be started anew for it", n.Name, what)
}
