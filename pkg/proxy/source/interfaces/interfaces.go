// Package interfaces watches the addresses of this machine's network interfaces. Node ports are served on them, and the
// node's own connections are detected by them.
package interfaces

import (
	"context"
	"net/netip"
	"time"

	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Machine lists and watches addresses; netif.Kernel is one.
type Machine interface {
	// Addrs returns the addresses of all interfaces.
	Addrs() ([]netip.Addr, error)
	// Watch returns a channel that receives a value after addresses may have changed, until ctx ends.
	Watch(ctx context.Context) <-chan struct{}
}

const (
	// retry is the time before a failed listing is retried; it doubles up to resyncPeriod.
	retry = 100 * time.Millisecond
	// resyncPeriod is the time between listings without a notification.
	resyncPeriod = time.Minute
)

// Source watches the machine's addresses. It is a source.Source.
type Source struct {
	machine  Machine
	complete chan struct{}
}

// New returns a source of a machine's addresses.
func New(machine Machine) *Source {
	return &Source{machine: machine, complete: make(chan struct{})}
}

// Complete returns a channel that is closed after the first successful listing.
func (s *Source) Complete() <-chan struct{} { return s.complete }

// Run watches the addresses until ctx ends. A failed listing is retried and the last known addresses are kept:
// without addresses, node ports would not be served (kubernetes/kubernetes#129146).
func (s *Source) Run(ctx context.Context, b *cluster.Builder) error {
	changed := s.machine.Watch(ctx)
	wait, known := retry, false
	for {
		addrs, err := s.machine.Addrs()
		next := resyncPeriod
		if err != nil {
			next, wait = wait, min(2*wait, resyncPeriod)
			klog.FromContext(ctx).Error(err, "Failed to list the machine's addresses; keeping the last known ones", "retryIn", next)
		} else {
			wait = retry
			_ = b.Update(func(u *cluster.Update) { u.SetInterfaces(addrs) }) // addresses cause no Problems
			if !known {
				known = true
				close(s.complete)
			}
		}
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-changed:
			timer.Stop()
		case <-timer.C:
		}
	}
}
