package proxy

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/logonce"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source"
)

// Config configures a Proxy.
type Config struct {
	Sources   []source.Source
	Builder   *cluster.Builder
	Backend   backend.Backend
	Plan      *plan.Options
	Observers []Observer
	// MinSyncPeriod is the minimum time between two syncs, except for early syncs, which use less than 5 % of a core in any
	// minute. The first change after a quiet time is never delayed. 0 means no minimum.
	MinSyncPeriod time.Duration
	// SyncPeriod bounds the time until a failed sync is retried; it is less if syncs cost little.
	SyncPeriod time.Duration
	// CheckPeriod is the time between two checks for drift; 0 means no checks.
	CheckPeriod time.Duration
	// Begin is closed when the first sync may start; nil means at once. The sources run before that.
	Begin <-chan struct{}
	// Spent returns the processor time used so far by the calling thread and the programs that it started. It measures
	// what a sync costs. If it is nil, every sync counts as free.
	Spent func() time.Duration
}

// Observer is a [SyncObserver], a [QueueObserver], a [DriftObserver], or several of them. All methods are called by one
// goroutine and must not block.
type Observer any

// SyncObserver is notified of every sync.
type SyncObserver interface {
	// Synced reports a sync that has finished. The Sync must not be modified.
	Synced(s *Sync)
}

// QueueObserver is notified of changes before they are programmed.
type QueueObserver interface {
	// Queued reports that the cluster has changed and a sync is due.
	Queued(at time.Time)
}

// DriftObserver is notified of drift.
type DriftObserver interface {
	// Drifted reports that the rules were modified externally. A sync follows.
	Drifted(d backend.Drift)
}

// Sync is one pass through the pipeline.
type Sync struct {
	// Before is the snapshot of the last successful sync, nil at first; After is the snapshot of this one.
	Before, After *cluster.Snapshot
	Plan          *plan.Plan
	Results       []backend.Result
	// Cost is the processor time that the sync used.
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

// logged returns the keys and values to log about a successful sync: durations, and counts over all families.
func (s *Sync) logged() []any {
	keys := []any{"took", rounded(s.Finished.Sub(s.Started)), "services", s.After.Services.Len()}
	elements, rules, refused, reread := 0, 0, 0, 0
	for _, result := range s.Results {
		keys = append(keys, "took"+result.Family.String(), rounded(result.Duration))
		elements, rules, refused = elements+result.Elements, rules+result.Rules, refused+len(result.Refused)
		if result.Read {
			reread++
		}
	}
	return append(keys, "elementsWritten", elements, "rulesWritten", rules, "refusedPorts", refused, "familiesRead", reread)
}

// rounded returns a duration without digits that mean nothing to a reader.
func rounded(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

// again returns how soon a family asks for another sync, 0 if none does.
func (s *Sync) again() (soonest time.Duration) {
	for _, result := range s.Results {
		if result.Again > 0 && (soonest == 0 || result.Again < soonest) {
			soonest = result.Again
		}
	}
	return soonest
}

// Proxy runs the pipeline on one snapshot after another.
type Proxy struct {
	Config
	syncObservers  []SyncObserver
	queueObservers []QueueObserver
	driftObservers []DriftObserver

	pace    pacer
	retry   wait.Backoff
	repairs repairs
	// plan is the plan of the last sync, synced the snapshot of the last successful one.
	plan   *plan.Plan
	synced *cluster.Snapshot
	// syncFailing and checkFailing keep a failure that lasts from being logged each time.
	syncFailing, checkFailing logonce.Condition
	// drifting keeps a program that modifies our rules all the time from being logged each time; driftsOmitted counts the
	// drifts since the last line.
	drifting      logonce.Condition
	driftsOmitted int
}

// New returns a Proxy; Run starts it. It panics if an Observer implements none of the interfaces.
func New(config Config) *Proxy {
	if config.Spent == nil {
		config.Spent = func() time.Duration { return 0 }
	}
	p := &Proxy{
		Config: config, pace: pacer{min: config.MinSyncPeriod}, retry: retries(config.SyncPeriod),
		syncFailing:  logonce.Condition{Again: logonce.Reminder, Calm: calm},
		checkFailing: logonce.Condition{Again: logonce.Reminder, Settle: checkSettle, Calm: calm},
		drifting:     logonce.Condition{Again: calm, Calm: calm},
	}
	for _, o := range config.Observers {
		p.observe(o)
	}
	return p
}

func (p *Proxy) observe(o Observer) {
	sync, syncs := o.(SyncObserver)
	queue, queues := o.(QueueObserver)
	drift, drifts := o.(DriftObserver)
	if syncs {
		p.syncObservers = append(p.syncObservers, sync)
	}
	if queues {
		p.queueObservers = append(p.queueObservers, queue)
	}
	if drifts {
		p.driftObservers = append(p.driftObservers, drift)
	}
	if !syncs && !queues && !drifts {
		panic(fmt.Sprintf("%T observes nothing", o))
	}
}

// Run proxies until ctx ends or a source fails. It finishes a sync in progress and leaves the rules in force.
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

// loop syncs after changes, after drift, and to retry a failed sync.
func (p *Proxy) loop(ctx context.Context, ended <-chan error) error {
	due := time.NewTimer(0) // the first sync is due at once
	defer due.Stop()
	var check <-chan time.Time
	if p.CheckPeriod > 0 {
		ticker := time.NewTicker(p.CheckPeriod)
		defer ticker.Stop()
		check = ticker.C
	}
	var rested time.Time // no check for drift before
	changed := p.Builder.Changed()
	for ctx.Err() == nil { // select chooses at random, and a change may have come during the last sync
		select {
		case <-ctx.Done():
		case err := <-ended:
			return err
		case <-changed:
			now := time.Now()
			for _, o := range p.queueObservers {
				o.Queued(now)
			}
			changed = nil // the sync that is due now includes all changes until then
			due.Reset(p.pace.wait(now))
		case <-check:
			begun := time.Now()
			if begun.Before(rested) {
				continue
			}
			if p.drifted(ctx) {
				now := time.Now()
				wait := p.repairs.wait(now, p.pace.cost)
				if changed == nil { // the sync that is due for a change also repairs
					wait = 0
				}
				due.Reset(max(wait, p.pace.wait(now)))
			}
			rested = time.Now().Add(time.Since(begun)) // a check that takes long, or hangs, leaves as much time for syncs
		case <-due.C:
			changed = p.Builder.Changed()
			select {
			case <-changed: // included in this sync's snapshot
			default:
			}
			if wait := p.sync(ctx); wait > 0 {
				due.Reset(wait)
			}
		}
	}
	return nil
}

const (
	// syncTimeout is the time limit of a sync, longer than the slowest successful one: with 45,000 Services,
	// iptables-nft-save alone may take 35 s. A sync that is in progress when the process ends has the same limit.
	syncTimeout = 5 * time.Minute
	// checkTimeout is the time limit of a check for drift. No change is noticed meanwhile, not even by the health checks.
	checkTimeout = 10 * time.Second
	// checkSettle is how long the check for drift has to succeed until its last failure counts as over: one in a few checks
	// may fail.
	checkSettle = time.Minute
	// calm is the least time between two log lines about failures or drift: checks are made four times a second.
	calm = 10 * time.Second
)

// sync runs the pipeline on the current snapshot. It returns when to do so again without a change, to retry a failure or
// because the backend asks for it; 0 means never.
func (p *Proxy) sync(ctx context.Context) (again time.Duration) {
	logger := klog.FromContext(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), syncTimeout)
	defer cancel()
	runtime.LockOSThread() // Spent measures the thread
	defer runtime.UnlockOSThread()
	before := p.Spent()
	s := &Sync{Before: p.synced, Started: time.Now(), After: p.Builder.Snapshot()}
	s.Plan = plan.Compute(s.After, p.Plan, p.plan)
	s.Results = p.Backend.Sync(ctx, s.Plan)
	s.Finished, s.Cost = time.Now(), p.Spent()-before
	p.plan = s.Plan
	p.pace.record(s)
	p.repairs.synced()
	if err := s.Err(); err == nil {
		if p.synced == nil {
			logger.Info("First sync succeeded; Services are served", "took", rounded(s.Finished.Sub(s.Started)), "services", s.After.Services.Len())
		}
		p.synced = s.After
		p.retry = retries(p.SyncPeriod)
		again = s.again()
		if p.syncFailing.Ended() {
			logger.Info("Sync succeeded again")
		}
		if logger := logger.V(2); logger.Enabled() {
			logger.Info("Synced", s.logged()...)
		}
	} else {
		again = p.retryIn(s.Cost)
		if p.syncFailing.Changed(err.Error()) {
			logger.Error(err, "Sync failed, at least in part; the rules that could not be written stay as they were", "retryIn", again)
		}
	}
	for _, o := range p.syncObservers {
		o.Synced(s)
	}
	return again
}

// drifted checks whether the rules were modified externally.
func (p *Proxy) drifted(ctx context.Context) bool {
	logger := klog.FromContext(ctx)
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	drifts, err := p.Backend.Check(ctx)
	if err == nil {
		if p.checkFailing.Ended() {
			logger.Info("Drift check succeeded again")
		}
	} else if p.checkFailing.Changed(err.Error()) {
		logger.Error(err, "Drift check failed; external modifications may go unnoticed")
	}
	for _, d := range drifts {
		if p.drifting.Changed(d.What) {
			found := []any{"family", d.Family, "what", d.What}
			if d.Writer != "" {
				found = append(found, "writer", d.Writer)
			}
			if p.driftsOmitted > 0 {
				found = append(found, "notLogged", p.driftsOmitted)
			}
			logger.Info("Rules were modified externally; resyncing", found...)
			p.driftsOmitted = 0
		} else {
			p.driftsOmitted++
		}
		for _, o := range p.driftObservers {
			o.Drifted(d)
		}
	}
	return len(drifts) > 0
}
