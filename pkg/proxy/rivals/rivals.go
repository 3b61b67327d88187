// Package rivals recognises another kube-proxy that takes no lock, such as Kubernetes' own, by the rules that it writes: in
// another mode, rules that come back after they were removed; in the same mode, objects that this proxy never writes.
package rivals

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
)

const (
	// period is the time between two looks for the rules of other modes.
	period = 5 * time.Second
	// quiet is the time between two log lines about the same mode.
	quiet = 10 * time.Minute
)

// Mode is a proxy mode.
type Mode struct {
	Name string
	// Present reports whether there are rules of this mode.
	Present func(ctx context.Context) (bool, error)
}

// Config is what a Watch is made of.
type Config struct {
	// Mode is the name of this proxy's mode. Others are all other modes, whose rules this proxy removes at its start.
	Mode   string
	Others []Mode
	// Seen is called each time another proxy of a mode is seen. It must not block.
	Seen func(mode string, at time.Time)
	// Processes lists the ids of other processes that may be meant.
	Processes func() ([]int, error)
	Clock     clock.WithTicker
	Logger    logr.Logger
}

// Watch looks for other proxies. It is a proxy.Observer.
type Watch struct {
	config  Config
	drifted chan struct{}
	// absent are the other modes whose rules were seen to be gone, told when each mode was last logged. Only Run uses them.
	absent map[string]bool
	told   map[string]time.Time
}

var _ proxy.DriftObserver = (*Watch)(nil)

// New makes a Watch; Run starts it.
func New(config Config) *Watch {
	return &Watch{config: config, drifted: make(chan struct{}, 1), absent: map[string]bool{}, told: map[string]time.Time{}}
}

// Synced does nothing.
func (w *Watch) Synced(*proxy.Sync) {}

// Drifted notes that a proxy of the same mode wrote.
func (w *Watch) Drifted(d backend.Drift) {
	if !d.Rival {
		return
	}
	select {
	case w.drifted <- struct{}{}:
	default: // it is noted already
	}
}

// Run looks until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	ticker := w.config.Clock.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.drifted:
			w.seen(w.config.Mode)
		case <-ticker.C():
			for _, mode := range w.config.Others {
				w.look(ctx, mode)
			}
		}
	}
}

// look finds out whether rules of another mode came back. Those that were there from the start are left over.
func (w *Watch) look(ctx context.Context, mode Mode) {
	present, err := mode.Present(ctx)
	switch {
	case err != nil:
		w.config.Logger.V(2).Info("Cannot look for the rules of another mode", "mode", mode.Name, "err", err.Error())
	case !present:
		w.absent[mode.Name] = true
	case w.absent[mode.Name]:
		w.seen(mode.Name)
	}
}

func (w *Watch) seen(mode string) {
	now := w.config.Clock.Now()
	w.config.Seen(mode, now)
	if last, ok := w.told[mode]; ok && now.Sub(last) < quiet {
		return
	}
	w.told[mode] = now
	pids, err := w.config.Processes()
	if err != nil {
		w.config.Logger.V(2).Info("Cannot look for other processes", "err", err.Error())
	}
	logger := w.config.Logger.WithValues("mode", mode)
	if len(pids) > 0 {
		logger = logger.WithValues("pids", pids)
	}
	logger.Info("Another kube-proxy, which takes no lock, writes rules on this node; stop one of the two")
}
