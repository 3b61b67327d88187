// Package rivals removes the rules of other modes, and detects another kube-proxy on this node that takes no lock, such as
// Kubernetes' own, by its rules: in another mode, rules that reappear after they were removed; in the same mode, objects that
// this proxy never writes.
package rivals

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
}

// Config configures a Watcher.
type Config struct {
	// Mode is the name of this proxy's mode, Others are all other modes.
	Mode   string
	Others []Mode
	// Families are the families that this proxy serves, or will.
	Families []cluster.Family
	// Seen is called each time another proxy is detected. It must not block.
	Seen func(mode string, at time.Time)
	// Processes returns the ids of processes that may be the other proxy.
	Processes func() ([]int, error)
	Logger    logr.Logger
}

// Watcher removes the rules of other modes, and detects other proxies. It is a proxy.Observer.
type Watcher struct {
	proxy.Ignore
	config  Config
	drifted chan struct{}
	// inForce holds the families whose rules of this proxy are in force; only Synced uses it. grown receives a value when there
	// are more, with those in which the rules of other modes are no longer needed: none stands for all.
	inForce map[cluster.Family]bool
	grown   chan []cluster.Family
	// logged are the modes for which another proxy has been logged; only Run uses it.
	logged logonce.Conditions[string]

	mu sync.Mutex
	// checked reports that the rules of other modes have been removed, in families. absent holds the modes whose rules were
	// removed or have been absent since.
	checked  bool
	families []cluster.Family
	absent   map[string]bool
}

var _ proxy.Observer = (*Watcher)(nil)

// New returns a Watcher; Run starts it.
func New(config Config) *Watcher {
	return &Watcher{config: config, drifted: make(chan struct{}, 1), inForce: map[cluster.Family]bool{},
		grown: make(chan []cluster.Family, len(config.Families)), absent: map[string]bool{}, logged: logonce.Conditions[string]{Again: logonce.Reminder}}
}

// Synced lets the rules of other modes be removed in the families whose rules of this proxy are in force.
func (w *Watcher) Synced(s *proxy.Sync) {
	before := len(w.inForce)
	for _, family := range s.InForce() {
		w.inForce[family] = true
	}
	switch {
	case len(w.inForce) == before:
	case len(w.inForce) < len(w.config.Families):
		w.grown <- slices.Collect(maps.Keys(w.inForce))
	default:
		w.grown <- nil
	}
}

// Drifted records that another proxy of the same mode has written rules.
func (w *Watcher) Drifted(d backend.Drift) {
	if !d.Rival {
		return
	}
	select {
	case w.drifted <- struct{}{}:
	default: // already recorded
	}
}

// Run removes the rules of other modes, and checks for other proxies until ctx ends; for those of other modes after the removal.
func (w *Watcher) Run(ctx context.Context) error {
	var removing sync.WaitGroup
	removing.Go(func() { w.removeAll(ctx) })
	defer removing.Wait()
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.drifted:
			w.seen(w.config.Mode)
		case <-ticker.C:
			for _, mode := range w.config.Others {
				w.check(ctx, mode)
			}
		}
	}
}

// check checks whether rules of another mode reappeared. Rules that have existed since the removal could not be removed.
func (w *Watcher) check(ctx context.Context, mode Mode) {
	w.mu.Lock()
	checked, families, absent := w.checked, w.families, w.absent[mode.Name]
	w.mu.Unlock()
	if !checked {
		return
	}
	present, err := mode.Present(ctx, families...)
	switch {
	case err != nil:
		w.config.Logger.V(2).Info("Failed to look for the rules of another mode", "mode", mode.Name, "err", err.Error())
	case !present:
		w.setAbsent(mode, true)
	case absent:
		w.seen(mode.Name)
	}
}

func (w *Watcher) setAbsent(mode Mode, absent bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.absent[mode.Name] = absent
}

func (w *Watcher) seen(mode string) {
	w.config.Seen(mode, time.Now())
	if !w.logged.Changed(mode, "") {
		return
	}
	pids, err := w.config.Processes()
	if err != nil {
		w.config.Logger.V(2).Info("Failed to look for other processes", "err", err.Error())
	}
	logger := w.config.Logger.WithValues("mode", mode)
	if len(pids) > 0 {
		logger = logger.WithValues("pids", pids)
	}
	logger.Info("Another kube-proxy, which takes no lock, writes rules on this node; stop one of the two")
}
