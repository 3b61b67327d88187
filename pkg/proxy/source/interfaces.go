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

// Machine lists and watches interfaces and their addresses; netif.Kernel is one.
type Machine interface {
	// Addrs returns the addresses of all interfaces.
	Addrs() ([]netip.Addr, error)
	// Watch returns a channel that receives a value after addresses may have changed, until ctx ends.
	Watch(ctx context.Context) <-chan struct{}
	// Devices returns the indexes of the interfaces on which IP packets arrive, by name. WatchDevices is Watch for changes of them.
	Devices() (map[string]int, error)
	WatchDevices(ctx context.Context) <-chan struct{}
}

const (
	// firstRetry is the time from a failed listing to the first retry. It doubles with each failure, up to resyncPeriod.
	firstRetry = 100 * time.Millisecond
	// resyncPeriod is the time between listings without a notification.
	resyncPeriod = time.Minute
)

// Interfaces watches this machine's network interfaces. It is a Source.
type Interfaces struct {
	// what is listed, and how to list and watch it.
	what     string
	list     func() (set func(*cluster.Update), err error)
	watch    func(ctx context.Context) <-chan struct{}
	complete chan struct{}
}

// NewInterfaces returns a source of a machine's addresses. Node ports are served on them, and the node's own connections are detected by
// them.
func NewInterfaces(machine Machine) *Interfaces {
	return &Interfaces{what: "addresses", watch: machine.Watch, complete: make(chan struct{}), list: func() (func(*cluster.Update), error) {
		addrs, err := machine.Addrs()
		return func(u *cluster.Update) { u.SetInterfaces(addrs) }, err
	}}
}

// NewDevices returns a source of a machine's interfaces. all is that of [cluster.Update.SetDevices].
func NewDevices(machine Machine, all bool) *Interfaces {
	return &Interfaces{what: "interfaces", watch: machine.WatchDevices, complete: make(chan struct{}), list: func() (func(*cluster.Update), error) {
		devices, err := machine.Devices()
		return func(u *cluster.Update) { u.SetDevices(devices, all) }, err
	}}
}

// Complete returns a channel that is closed after the first successful listing.
func (s *Interfaces) Complete() <-chan struct{} { return s.complete }

// Run watches until ctx ends. A failed listing is retried and what was listed last is kept: without addresses, node ports would not be served (kubernetes/kubernetes#129146).
func (s *Interfaces) Run(ctx context.Context, b *cluster.Builder) error {
	changed := s.watch(ctx)
	retries := wait.Backoff{Duration: firstRetry, Factor: 2, Cap: resyncPeriod, Steps: math.MaxInt}
	retry, known := retries, false
	failing := logonce.Condition{Again: logonce.Reminder}
	for {
		set, err := s.list()
		next := resyncPeriod
		if err != nil {
			next = retry.Step()
			if failing.Changed(err.Error()) {
				klog.FromContext(ctx).Error(err, "Failed to list the machine's "+s.what+"; keeping the last known ones", "retryIn", next)
			}
		} else {
			retry = retries
			if failing.Ended() {
				klog.FromContext(ctx).Info("Listed the machine's " + s.what + " again")
			}
			_ = b.Update(set) // interfaces cause no Problems
			if !known {
				known = true
				close(s.complete)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-time.After(next):
		}
	}
}
