// Package takeover makes this proxy the only one that writes the rules of a network namespace.
//
// A Turn is the lock on it (docs/decisions/0018): another proxy waits, with its caches filled, and takes over when the first one ends. An
// Observer removes the rules of other modes, and detects another kube-proxy that takes no lock, such as Kubernetes' own, by its rules:
// in another mode, rules that reappear after they were removed; in the same mode, objects that this proxy never writes.
package takeover

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/seed-11a05479/kube-proxy/pkg/logonce"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// period is the time between two checks for the rules of other modes.
const period = 5 * time.Second

// Mode is a proxy mode.
type Mode struct {
	Name string
	backend.Remover
	// Drain keeps what connections use; nil if they pass through nothing that Remove removes.
	Drain backend.Drain
}

// Config configures an Observer.
type Config struct {
	// Mode is the name of this proxy's mode, Others are all other modes.
	Mode   string
	Others []Mode
	// Families are the families that this proxy serves, or will.
	Families []cluster.Family
	// Drain keeps what connections use of other modes until they have ended, at the latest 24 hours after this
	// proxy's start: a restart begins them anew.
	Drain bool
	// Seen is called each time another proxy is detected. It must not block.
	Seen func(mode string, at time.Time)
	// Processes returns the ids of processes that may be the other proxy.
	Processes func() ([]int, error)
	Logger    logr.Logger
}

// Observer removes the rules of other modes, and detects other proxies. It is a proxy.Observer.
type Observer struct {
	proxy.Ignore
	config  Config
	drifted chan struct{}
	// inForce holds the families whose rules of this proxy are in force; only Synced uses it. grown receives a value when there
	// are more, with those in which the rules of other modes are no longer needed: none stands for all.
	inForce map[cluster.Family]bool
	grown   chan []cluster.Family
	// logged are the modes for which another proxy has been logged, which only Run uses, failed those whose rules cannot be removed,
	// which only removeAll uses, like drainEnd, when what connections use is removed too.
	logged, failed logonce.Conditions[string]
	drainEnd       time.Time

	mu sync.Mutex
	// checked reports that the rules of other modes have been removed, in families. absent holds the modes whose rules were
	// removed or have been absent since: if there are any, they are another proxy's.
	checked  bool
	families []cluster.Family
	absent   map[string]bool
}

var _ proxy.Observer = (*Observer)(nil)

// New returns an Observer; Run starts it.
func New(config Config) *Observer {
	return &Observer{config: config, drifted: make(chan struct{}, 1), inForce: map[cluster.Family]bool{},
		grown: make(chan []cluster.Family, len(config.Families)), absent: map[string]bool{},
		logged: logonce.Conditions[string]{Again: logonce.Reminder}, failed: logonce.Conditions[string]{Again: logonce.Reminder}}
}

// Synced lets the rules of other modes be removed in the families whose rules of this proxy are in force.
func (o *Observer) Synced(s *proxy.Sync) {
	before := len(o.inForce)
	for _, family := range s.InForce() {
		o.inForce[family] = true
	}
	switch {
	case len(o.inForce) == before:
	case len(o.inForce) < len(o.config.Families):
		o.grown <- slices.Collect(maps.Keys(o.inForce))
	default:
		o.grown <- nil
	}
}

// Drifted records that another proxy of the same mode has written rules.
func (o *Observer) Drifted(d backend.Drift) {
	if !d.Rival {
		return
	}
	select {
	case o.drifted <- struct{}{}:
	default: // already recorded
	}
}

// Run removes the rules of other modes, and checks for other proxies until ctx ends; for those of other modes after the removal.
func (o *Observer) Run(ctx context.Context) error {
	var removing sync.WaitGroup
	removing.Go(func() { o.removeAll(ctx) })
	defer removing.Wait()
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-o.drifted:
			o.seen(o.config.Mode)
		case <-ticker.C:
			for _, mode := range o.config.Others {
				o.check(ctx, mode)
			}
		}
	}
}

// check checks whether rules of another mode reappeared. Rules that have existed since the removal could not be removed.
func (o *Observer) check(ctx context.Context, mode Mode) {
	o.mu.Lock()
	checked, families, absent := o.checked, o.families, o.absent[mode.Name]
	o.mu.Unlock()
	if !checked {
		return
	}
	present, err := mode.Present(ctx, families...)
	switch {
	case err != nil:
		o.config.Logger.V(2).Info("Failed to look for the rules of another mode", "mode", mode.Name, "err", err.Error())
	case !present:
		o.setAbsent(mode, true)
	case absent:
		o.seen(mode.Name)
	}
}

func (o *Observer) setAbsent(mode Mode, absent bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.absent[mode.Name] = absent
}

func (o *Observer) seen(mode string) {
	o.config.Seen(mode, time.Now())
	if !o.logged.Changed(mode, "") {
		return
	}
	pids, err := o.config.Processes()
	if err != nil {
		o.config.Logger.V(2).Info("Failed to look for other processes", "err", err.Error())
	}
	logger := o.config.Logger.WithValues("mode", mode)
	if len(pids) > 0 {
		logger = logger.WithValues("pids", pids)
	}
	logger.Info("Another kube-proxy, which takes no lock, writes rules on this node; stop one of the two")
}
