package source

import (
	"context"
	"math"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/logonce"
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
	// firstRetry is the time from a failed listing to the first retry. It doubles with each failure, up to resyncPeriod.
	firstRetry = 100 * time.Millisecond
	// resyncPeriod is the time between listings without a notification.
	resyncPeriod = time.Minute
)

// Interfaces watches the addresses of this machine's network interfaces. Node ports are served on them, and the node's own
// connections are detected by them. It is a Source.
type Interfaces struct {
	machine  Machine
	complete chan struct{}
}

// NewInterfaces returns a source of a machine's addresses.
func NewInterfaces(machine Machine) *Interfaces {
	return &Interfaces{machine: machine, complete: make(chan struct{})}
}

// Complete returns a channel that is closed after the first successful listing.
func (s *Interfaces) Complete() <-chan struct{} { return s.complete }

// Run watches the addresses until ctx ends. A failed listing is retried and the last known addresses are kept:
// without addresses, node ports would not be served (kubernetes/kubernetes#129146).
func (s *Interfaces) Run(ctx context.Context, b *cluster.Builder) error {
	changed := s.machine.Watch(ctx)
	retries := wait.Backoff{Duration: firstRetry, Factor: 2, Cap: resyncPeriod, Steps: math.MaxInt}
	retry, known := retries, false
	failing := logonce.Condition{Again: logonce.Reminder}
	for {
		addrs, err := s.machine.Addrs()
		next := resyncPeriod
		if err != nil {
			next = retry.Step()
			if failing.Changed(err.Error()) {
				klog.FromContext(ctx).Error(err, "Failed to list the machine's addresses; keeping the last known ones", "retryIn", next)
			}
		} else {
			retry = retries
			if failing.Ended() {
				klog.FromContext(ctx).Info("Listed the machine's addresses again")
			}
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
