package proxy

import (
	"context"
	"errors"
	"runtime"
	"time"

	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source"
)

// Config is what a Proxy is made of.
type Config struct {
	Sources   []source.Source
	Builder   *cluster.Builder
	Backend   backend.Backend
	Plan      *plan.Options
	Observers []Observer
	// MinSyncPeriod is the least time between two syncs, unless syncs cost little: those that come earlier use less than
	// 5 % of a core in any minute. It never delays the first change after a quiet time. 0 never holds back.
	MinSyncPeriod time.Duration
	// SyncPeriod bounds the time until a sync that failed is tried again.
	SyncPeriod time.Duration
	// CheckPeriod is the time between looks whether somebody else changed the rules; 0 never looks.
	CheckPeriod time.Duration
	// Begin is closed when the first sync may be done; nil is at once. The sources run before that.
	Begin <-chan struct{}
	// Spent returns the processor time that the calling thread and the programs it started have used so far; it says what
	// a sync costs. Nil counts every sync as free.
	Spent func() time.Duration
}

// Observer is notified of every sync. It may also implement QueueObserver and DriftObserver. All methods are called
// by one goroutine and must not block.
type Observer interface {
	// Synced reports a sync that has finished. The Sync must not be modified.
	Synced(s *Sync)
}

// QueueObserver is an Observer that is also notified of changes before they are programmed.
type QueueObserver interface {
	Observer
	// Queued reports that the cluster has changed and a sync is due.
	Queued(at time.Time)
}

// DriftObserver is an Observer that is also notified of drift.
type DriftObserver interface {
	Observer
	// Drifted reports that the rules were modified externally. A sync follows.
	Drifted(d backend.Drift)
}

// Sync is one passage through the pipeline.
type Sync struct {
	// Before is the snapshot of the last sync that went well, nil at first; After is that of this one.
	Before, After *cluster.Snapshot
	Plan          *plan.Plan
	Results       []backend.Result
	// Started and Finished are its times, and Cost the processor time that it used.
	Started, Finished time.Time
	Cost              time.Duration
}

// Err joins the errors of all families.
func (s *Sync) Err() error {
	var failed []error
	for _, result := range s.Results {
		failed = append(failed, result.Err)
	}
	return errors.Join(failed...)
}

// logged are the keys and values of the log line of a sync that went well: durations, and counts over all families.
func (s *Sync) logged() []any {
	keys := []any{"took", s.Finished.Sub(s.Started), "services", s.After.Services.Len()}
	elements, rules, refused, reread := 0, 0, 0, 0
	for _, result := range s.Results {
		keys = append(keys, "took"+result.Family.String(), result.Duration)
		elements, rules, refused = elements+result.Elements, rules+result.Rules, refused+len(result.Refused)
		if result.Read {
			reread++
		}
	}
	return append(keys, "elementsWritten", elements, "rulesWritten", rules, "refusedPorts", refused, "familiesRead", reread)
}

// again is how soon a family asks for another sync.
func (s *Sync) again() (soonest time.Duration) {
	for _, result := range s.Results {
		if result.Again > 0 && (soonest == 0 || result.Again < soonest) {
			soonest = result.Again
		}
	}
	return soonest
}

// Proxy takes snapshots through the pipeline, one after another.
type Proxy struct {
	Config
	pace  pacer
	retry backoff
	// plan and synced are those of the last sync, and of the last that went well.
	plan   *plan.Plan
	synced *cluster.Snapshot
}

// New makes a Proxy; Run starts it.
func New(config Config) *Proxy {
	if config.Spent == nil {
		config.Spent = func() time.Duration { return 0 }
	}
	return &Proxy{Config: config, pace: pacer{min: config.MinSyncPeriod}}
}

// Run proxies until ctx ends or a source fails, and leaves the rules in force. A sync in progress is
// finished first.
func (p *Proxy) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, len(p.Sources))
	for _, s := range p.Sources {
		go func() { ended <- s.Run(ctx, p.Builder) }()
	}
	for _, s := range p.Sources {
		select {
		case <-s.Complete():
		case err := <-ended:
			return err
		case <-ctx.Done():
			return nil
		}
	}
	if p.Begin != nil {
		select {
		case <-p.Begin:
		case err := <-ended:
			return err
		case <-ctx.Done():
			return nil
		}
	}
	klog.FromContext(ctx).Info("Caches synced; starting the first sync")
	return p.loop(ctx, ended)
}

// loop syncs when something changed, when a failed sync is due again, and when the rules were tampered with.
func (p *Proxy) loop(ctx context.Context, ended <-chan error) error {
	due := time.NewTimer(0) // the first sync is due at once
	defer due.Stop()
	var check <-chan time.Time
	if p.CheckPeriod > 0 {
		ticker := time.NewTicker(p.CheckPeriod)
		defer ticker.Stop()
		check = ticker.C
	}
	changed := p.Builder.Changed()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			return err
		case <-changed:
			now := time.Now()
			for _, o := range p.Observers {
				if o, ok := o.(QueueObserver); ok {
					o.Queued(now)
				}
			}
			changed = nil // one change makes a sync due; the sync takes all that come until then
			due.Reset(p.pace.wait(now))
		case <-check:
			if p.drifted(ctx) {
				due.Reset(p.pace.wait(time.Now()))
			}
		case <-due.C:
			changed = p.Builder.Changed()
			select {
			case <-changed: // it is in the snapshot that this sync takes
			default:
			}
			if wait := p.sync(ctx); wait > 0 {
				due.Reset(wait)
			}
		}
	}
}

// syncTimeout is how long a sync may take: longer than any that gets there, such as the one that begins with
// iptables-nft-save reading the rules of 45,000 Services (35 s). One that the end of the process interrupts has that long
// too.
const syncTimeout = 5 * time.Minute

// sync takes the present snapshot through the pipeline. It tells when to do so again though nothing changes: if it failed,
// or the backend asks for it; 0 is never.
func (p *Proxy) sync(ctx context.Context) (wait time.Duration) {
	logger := klog.FromContext(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), syncTimeout)
	defer cancel()
	runtime.LockOSThread() // whose processor time is what the sync costs
	defer runtime.UnlockOSThread()
	before := p.Spent()
	s := &Sync{Before: p.synced, Started: time.Now(), After: p.Builder.Snapshot()}
	s.Plan = plan.Compute(s.After, p.Plan, p.plan)
	s.Results = p.Backend.Sync(ctx, s.Plan)
	s.Finished, s.Cost = time.Now(), p.Spent()-before
	p.plan = s.Plan
	p.pace.record(s)
	err := s.Err()
	if err == nil {
		p.synced = s.After
		p.retry = backoff{}
		wait = s.again()
		if logger := logger.V(2); logger.Enabled() {
			logger.Info("Synced", s.logged()...)
		}
	} else {
		wait = p.retry.next(p.SyncPeriod)
		logger.Error(err, "Sync failed, at least in part; where it did, what was programmed before stays in force", "retryIn", wait)
	}
	for _, o := range p.Observers {
		o.Synced(s)
	}
	return wait
}

// drifted looks whether somebody else changed the rules.
func (p *Proxy) drifted(ctx context.Context) bool {
	logger := klog.FromContext(ctx)
	drifts, err := p.Backend.Check(ctx)
	if err != nil {
		logger.Error(err, "Cannot tell whether the rules are still as written")
	}
	for _, d := range drifts {
		logger.Info("Somebody else changed the rules; repairing", "family", d.Family, "what", d.What, "writer", d.Writer)
		for _, o := range p.Observers {
			if o, ok := o.(DriftObserver); ok {
				o.Drifted(d)
			}
		}
	}
	return len(drifts) > 0
}
