package proxy

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
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
	// minute, and for repairs. The first change after a quiet time is never delayed. 0 means no minimum.
	MinSyncPeriod time.Duration
	// PartTime is how long a part of an expensive change may take, and so delay other changes: what is expensive is programmed in
	// parts, with rests. 0 programs each change at once.
	PartTime time.Duration
	// SyncPeriod bounds the time until a failed sync is retried; it is less if syncs cost little.
	SyncPeriod time.Duration
	// CheckPeriod is the least time between two checks for drift, and the time between them if the Backend does not ask
	// for checks; 0 means no checks.
	CheckPeriod time.Duration
	// Begin is closed when no other proxy writes rules any more: the kernel's state is read, and the first sync may start. nil
	// means at once. The sources run before that.
	Begin <-chan struct{}
	// Measure starts to measure the processor time that a sync uses: that of the calling thread, of the programs that it
	// starts, and of what else works for the returned context. If it is nil, every sync counts as free.
	Measure func(ctx context.Context) (_ context.Context, spent func() time.Duration)
}

// Sync is one pass through the pipeline.
type Sync struct {
	// After is the snapshot that the plan implements: it has an earlier version of each Service whose change waits for its turn.
	After   *cluster.Snapshot
	Plan    *plan.Plan
	Results []backend.Result
	// Changes are those since the previous sync, whether or not it succeeded. Programmed are those since the last sync that succeeded in a
	// family, for each family in which this one did. Applied are those since the last sync that succeeded in all families, nil unless this one
	// did. Shown are those since the last sync that succeeded in any family, nil unless this one did; commands show that state.
	Changes           Changes
	Programmed        map[cluster.Family]Changes
	Applied           *Changes
	Shown             *Changes
	Started, Finished time.Time
	// Cost is the processor time that the sync used.
	Cost time.Duration
	// Delayed are the Services whose change waits because it is expensive, and has waited for long.
	Delayed []Delay
}

// Err joins the errors of all families, each with its family.
func (s *Sync) Err() error {
	var failed []error
	for _, result := range s.Results {
		if result.Err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", result.Family, result.Err))
		}
	}
	return errors.Join(failed...)
}

// wrote reports whether anything was written in a family.
func (s *Sync) wrote() bool {
	return slices.ContainsFunc(s.Results, func(r backend.Result) bool { return r.Elements+r.Rules > 0 })
}

// read reports whether the kernel's state was read in a family.
func (s *Sync) read() bool {
	return slices.ContainsFunc(s.Results, func(r backend.Result) bool { return r.Read })
}

// InForce returns the families that were programmed.
func (s *Sync) InForce() (families []cluster.Family) {
	for _, result := range s.Results {
		if result.Err == nil {
			families = append(families, result.Family)
		}
	}
	return families
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

// rounded returns a duration without meaningless digits.
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
	pace    pacer
	parts   parts
	retry   wait.Backoff
	repairs repairs
	plan    *plan.Plan // of the last sync
	history History
	// syncFailing and checkFailing limit how often a lasting failure is logged.
	syncFailing, checkFailing logonce.Condition
	// drifting limits how often drifts are logged; driftsOmitted counts those since the last line.
	drifting      logonce.Condition
	driftsOmitted int
}

// New returns a Proxy; Run starts it.
func New(config Config) *Proxy {
	if config.Measure == nil {
		config.Measure = func(ctx context.Context) (context.Context, func() time.Duration) {
			return ctx, func() time.Duration { return 0 }
		}
	}
	return &Proxy{
		Config: config, pace: pacer{min: config.MinSyncPeriod}, parts: parts{time: config.PartTime}, retry: retries(config.SyncPeriod), repairs: repairs{},
		syncFailing:  logonce.Condition{Again: logonce.Reminder, Calm: calm},
		checkFailing: logonce.Condition{Again: logonce.Reminder, Settle: checkSettle, Calm: calm},
		drifting:     logonce.Condition{Again: calm, Calm: calm},
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
	read := make(chan struct{})
	go func() {
		defer close(read)
		p.readEarly(ctx)
	}()
	defer func() { cancel(); <-read }()
	first := []<-chan struct{}{read}
	for _, s := range p.Sources {
		first = append(first, s.Complete())
	}
	for _, done := range first {
		select {
		case <-done:
		case err := <-ended:
			return err
		case <-ctx.Done():
			return nil
		}
	}
	klog.FromContext(ctx).Info("Caches synced; starting the first sync")
	return p.loop(ctx, ended)
}

// readEarly waits for Begin, and lets the backend read the kernel's state while the sources read theirs.
func (p *Proxy) readEarly(ctx context.Context) {
	if p.Begin != nil {
		select {
		case <-p.Begin:
		case <-ctx.Done():
			return
		}
	}
	ctx, cancel := context.WithTimeout(ctx, syncTimeout) // the first sync reports what hangs
	defer cancel()
	p.Backend.ReadEarly(ctx)
}

// loop syncs after changes, after drift, and to retry a failed sync.
func (p *Proxy) loop(ctx context.Context, ended <-chan error) error {
	due := newAlarm() // the first sync is due at once
	defer due.stop()
	check := newChecks(p.CheckPeriod, p.Backend.Modified())
	defer check.stop()
	changed := p.Builder.Changed()
	queue := func(at time.Time) {
		for _, o := range p.Observers {
			o.Queued(at)
		}
		changed = nil // the sync that is due now includes all changes until then
		due.advance(p.pace.wait(time.Now()))
	}
	for ctx.Err() == nil { // select chooses at random, and a change may have come during the last sync
		select {
		case <-ctx.Done():
		case err := <-ended:
			return err
		case <-changed:
			if p.awaits() {
				queue(time.Now())
			}
		case <-check.requested:
			check.schedule()
		case <-check.due():
			begun := time.Now()
			drifts, arrived, err := p.check(ctx, changed)
			if !arrived.IsZero() && p.awaits() {
				queue(arrived)
			}
			if len(drifts) > 0 {
				now := time.Now()
				due.advance(max(p.repairs.wait(now, p.pace.cost, p.SyncPeriod, drifts), p.pace.repair(now)))
			}
			check.done(begun, err, p.Backend.CheckSoon())
		case <-due.timer.C:
			due.at = time.Time{}
			changed = p.Builder.Changed()
			select {
			case <-changed: // included in this sync's snapshot
			default:
			}
			if wait := p.sync(ctx); wait > 0 {
				due.advance(wait)
			}
		}
	}
	return nil
}

const (
	// syncTimeout is the time limit of a sync, longer than the slowest successful one: with 45,000 Services,
	// iptables-nft-save alone may take 35 s. A sync that is in progress when the process ends has the same limit.
	syncTimeout = 5 * time.Minute
	// checkTimeout is the time limit of a check for drift, and changePatience how long a change waits for it: not much longer
	// than it would wait for the next sync anyway.
	checkTimeout   = 10 * time.Second
	changePatience = time.Second
	// checkSettle is how long the check for drift has to succeed until its last failure counts as over: one in a few checks
	// may fail.
	checkSettle = time.Minute
	// calm is the least time between two log lines about failures or drift: checks are made four times a second.
	calm = 10 * time.Second
)

// awaits reports whether a sync is due for what has changed since the last one: not for newer versions of Services whose change waits for
// its turn already, because a Service that changes all the time would use up the early syncs of all others.
func (p *Proxy) awaits() bool {
	return p.plan == nil || p.plan.Waits() == 0 || p.plan.Lacks(p.Builder.Snapshot())
}

// sync runs the pipeline on the current snapshot. It returns when to do so again without a change, to retry a failure or
// because the backend asks for it; 0 means never.
func (p *Proxy) sync(ctx context.Context) (again time.Duration) {
	logger := klog.FromContext(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), syncTimeout)
	defer cancel()
	runtime.LockOSThread() // Measure measures the thread
	defer runtime.UnlockOSThread()
	ctx, spent := p.Measure(ctx)
	s := &Sync{Started: time.Now()}
	snap := p.Builder.Snapshot()
	limit := p.parts.limit(s.Started, p.plan, snap)
	s.Plan = plan.Advance(snap, p.Plan, p.plan, limit)
	s.After = s.Plan.Snapshot()
	for _, o := range p.Observers {
		o.Planned(s.Plan)
	}
	s.Results = p.Backend.Sync(ctx, s.Plan)
	s.Finished, s.Cost = time.Now(), spent()
	p.parts.record(s, limit, p.plan)
	if first := p.plan == nil; s.Err() != nil || !first && !p.parts.included { // a first sync's cost is not that of a change
		p.pace.record(s)
	}
	p.plan = s.Plan
	p.repairs.synced()
	p.history.Add(s)
	if err := s.Err(); err == nil {
		if s.Applied.First() {
			logger.Info("First sync succeeded; Services are served", "took", rounded(s.Finished.Sub(s.Started)), "services", s.After.Services.Len())
		}
		p.retry = retries(p.SyncPeriod)
		again = p.parts.again(s)
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
	for _, o := range p.Observers {
		o.Synced(s)
	}
	return again
}

// errChangeWaits is the cause of an interrupted check.
var errChangeWaits = fmt.Errorf("interrupted after %v, because changed Services wait for it", changePatience)

// checkOrChange calls the backend's Check, and interrupts it when a change has waited for changePatience. It returns when a
// change arrived meanwhile, or the zero time. changed is nil if a change waits already.
func (p *Proxy) checkOrChange(ctx context.Context, changed <-chan struct{}) (drifts []backend.Drift, arrived time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	ctx, interrupt := context.WithCancelCause(ctx)
	arrivals := make(chan time.Time, 1)
	go func() {
		defer close(arrivals)
		if changed != nil {
			select {
			case <-changed:
				arrivals <- time.Now()
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-time.After(changePatience):
			interrupt(errChangeWaits)
		case <-ctx.Done():
		}
	}()
	drifts, err = p.Backend.Check(ctx) // on this goroutine: it has the thread, and so the network namespace, of the syncs
	if err != nil && errors.Is(context.Cause(ctx), errChangeWaits) && !errors.Is(err, errChangeWaits) {
		err = fmt.Errorf("%w: %w", errChangeWaits, err)
	}
	interrupt(nil)
	return drifts, <-arrivals, err
}

// check checks whether the rules were modified externally, and logs the result. It returns when a change arrived meanwhile, or
// the zero time.
func (p *Proxy) check(ctx context.Context, changed <-chan struct{}) (drifts []backend.Drift, arrived time.Time, err error) {
	logger := klog.FromContext(ctx)
	drifts, arrived, err = p.checkOrChange(ctx, changed)
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
		for _, o := range p.Observers {
			o.Drifted(d)
		}
	}
	return drifts, arrived, err
}
