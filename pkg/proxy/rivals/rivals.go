// Package rivals removes the rules of other modes, and detects another kube-proxy on this node that takes no lock, such as
// Kubernetes' own, by its rules: in another mode, rules that reappear after they were removed; in the same mode, objects that
// this proxy never writes.
package rivals

import (
	"context"
	"time"

	"github.com/go-logr/logr"

	"github.com/seed-11a05479/kube-proxy/pkg/logonce"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
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
	// Seen is called each time another proxy is detected. It must not block.
	Seen func(mode string, at time.Time)
	// Processes returns the ids of processes that may be the other proxy.
	Processes func() ([]int, error)
	Logger    logr.Logger
}

// Watcher removes the rules of other modes, and detects other proxies. It is a proxy.DriftObserver.
type Watcher struct {
	config  Config
	drifted chan struct{}
	// removed is closed when Remove returns.
	removed chan struct{}
	// The other fields belong to Run, absent to Remove until it returns. absent holds the modes whose rules were removed or have been
	// absent since, logged those for which another proxy has been logged.
	absent map[string]bool
	logged logonce.Conditions[string]
}

var _ proxy.DriftObserver = (*Watcher)(nil)

// New returns a Watcher. Remove and Run start it.
func New(config Config) *Watcher {
	return &Watcher{config: config, drifted: make(chan struct{}, 1), removed: make(chan struct{}), absent: map[string]bool{},
		logged: logonce.Conditions[string]{Again: logonce.Reminder}}
}

// Synced does nothing: the rules of others are found by drift, and by Run.
func (w *Watcher) Synced(*proxy.Sync) {}

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

// Run checks for other proxies until ctx ends; for those of other modes, once Remove has returned.
func (w *Watcher) Run(ctx context.Context) error {
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

// check checks whether rules of another mode reappeared. Rules that have existed since Remove returned could not be removed.
func (w *Watcher) check(ctx context.Context, mode Mode) {
	select {
	case <-w.removed:
	default:
		return
	}
	present, err := mode.Present(ctx)
	switch {
	case err != nil:
		w.config.Logger.V(2).Info("Failed to look for the rules of another mode", "mode", mode.Name, "err", err.Error())
	case !present:
		w.absent[mode.Name] = true
	case w.absent[mode.Name]:
		w.seen(mode.Name)
	}
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
