// Package interfaces feeds the pipeline with the addresses that this machine's interfaces bear. Node ports
// are served on them, and connections to oneself are told by them.
package interfaces

import (
	"context"
	"net/netip"
	"time"

	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Machine tells what addresses there are; netif.Kernel is one.
type Machine interface {
	// Addrs lists the addresses of all interfaces.
	Addrs() ([]netip.Addr, error)
	// Watch gives a channel that receives a value after addresses may have changed, until ctx ends.
	Watch(ctx context.Context) <-chan struct{}
}

const (
	// retry is the time before a listing that failed is tried again; it doubles up to patrol.
	retry = 100 * time.Millisecond
	// patrol is the time between looks without any word of a change.
	patrol = time.Minute
)

// Source follows the machine's addresses. It is a source.Source.
type Source struct {
	machine  Machine
	complete chan struct{}
}

// New makes a source of a machine's addresses.
func New(machine Machine) *Source {
	return &Source{machine: machine, complete: make(chan struct{})}
}

// Complete is closed when the addresses have been listed once.
func (s *Source) Complete() <-chan struct{} { return s.complete }

// Run follows the addresses until ctx ends. A listing that fails is tried again, and what was known stays in
// force meanwhile: without addresses, node ports would be gone (kubernetes/kubernetes#129146).
func (s *Source) Run(ctx context.Context, b *cluster.Builder) error {
	changed := s.machine.Watch(ctx)
	wait, known := retry, false
	for {
		addrs, err := s.machine.Addrs()
		next := patrol
		if err != nil {
			next, wait = wait, min(2*wait, patrol)
			klog.FromContext(ctx).Error(err, "Cannot tell the machine's addresses; those known stay in force", "retryIn", next)
		} else {
			wait = retry
			_ = b.Update(func(u *cluster.Update) { u.SetInterfaces(addrs) }) // addresses have no parts to leave out
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
