package proxy

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source"
)

// fakeSource is complete, and fails, when the test makes it.
type fakeSource struct {
	complete chan struct{}
	fail     chan error
}

func newSource() *fakeSource {
	return &fakeSource{complete: make(chan struct{}), fail: make(chan error)}
}

func (s *fakeSource) Complete() <-chan struct{} { return s.complete }

func (s *fakeSource) Run(ctx context.Context, _ *cluster.Builder) error {
	select {
	case err := <-s.fail:
		return err
	case <-ctx.Done():
		return nil
	}
}

// fakeBackend records its calls and returns what the test sets. It runs in a synctest bubble.
type fakeBackend struct {
	mu sync.Mutex
	// takes is how long a sync takes, and costs the processor time that it uses; result is how it goes.
	takes, costs time.Duration
	result       backend.Result
	// hangs makes it wait for the end of its context.
	hangs bool
	// drifts and checkErr are what Check finds.
	drifts   []backend.Drift
	checkErr error
	// checkTakes is how long Check takes, unless its context ends earlier.
	checkTakes time.Duration
	// modified is the channel that asks for checks; nil if the loop must check periodically.
	modified chan struct{}

	spent   time.Duration
	started []time.Time
	plans   []*plan.Plan
	checks  int
	parts   int      // of an audit
	others  []string // calls that the loop must not make
}

func (b *fakeBackend) Sync(ctx context.Context, p *plan.Plan, _ ...cluster.Family) []backend.Result {
	b.mu.Lock()
	b.started = append(b.started, time.Now())
	b.spent += b.costs
	b.plans = append(b.plans, p)
	takes, result := b.takes, b.result
	if b.hangs {
		takes = time.Hour
	}
	b.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		result.Err = context.Cause(ctx)
	}
	return []backend.Result{{Family: cluster.IPv6}, result}
}

// measure measures the processor time of syncs.
func (b *fakeBackend) measure(ctx context.Context) (context.Context, func() time.Duration) {
	spent := func() time.Duration {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.spent
	}
	before := spent()
	return ctx, func() time.Duration { return spent() - before }
}

func (b *fakeBackend) Check(ctx context.Context) ([]backend.Drift, error) {
	b.mu.Lock()
	takes := b.checkTakes
	b.mu.Unlock()
	if b.CheckSoon() {
		takes = 50 * time.Millisecond
	}
	select { // not with the mutex: the bubble's clock stops while a goroutine waits for one
	case <-time.After(takes):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.checks++
	return b.drifts, b.checkErr
}

// count returns the number of checks.
func (b *fakeBackend) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.checks
}

// CheckSoon is true until parts checks were made. Each takes 50 ms.
func (b *fakeBackend) CheckSoon() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.checks < b.parts
}

func (b *fakeBackend) Modified() <-chan struct{} { return b.modified }

func (b *fakeBackend) ReadEarly(context.Context) {}

func (b *fakeBackend) Counters() backend.KernelCounters {
	b.others = append(b.others, "Counters")
	return backend.KernelCounters{}
}

func (b *fakeBackend) Cleanup(context.Context) error {
	b.others = append(b.others, "Cleanup")
	return nil
}

func (b *fakeBackend) Close() error {
	b.others = append(b.others, "Close")
	return nil
}

// set changes how the backend behaves from now on.
func (b *fakeBackend) set(change func(*fakeBackend)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(b)
}

// fakeObserver records all notifications.
type fakeObserver struct {
	Ignore
	queued []time.Time
	synced []*Sync
	drifts []backend.Drift
}

func (o *fakeObserver) Queued(at time.Time)     { o.queued = append(o.queued, at) }
func (o *fakeObserver) Synced(s *Sync)          { o.synced = append(o.synced, s) }
func (o *fakeObserver) Drifted(d backend.Drift) { o.drifts = append(o.drifts, d) }

// syncCounter counts syncs.
type syncCounter struct {
	Ignore
	n int
}

func (c *syncCounter) Synced(*Sync) { c.n++ }

// driftCounter counts drifts.
type driftCounter struct {
	Ignore
	n int
}

func (c *driftCounter) Drifted(backend.Drift) { c.n++ }

// run is a running Proxy in a synctest bubble, where time passes only when all goroutines wait.
type run struct {
	t *testing.T
	Config
	sources  []*fakeSource
	backend  *fakeBackend
	observer *fakeObserver
	began    time.Time
	log      *journal
	changes  int
	end      context.CancelFunc
	ended    chan error
}

// journal keeps the lines that were logged.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(_, line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

// count returns the number of lines that contain some text.
func (j *journal) count(text string) (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, line := range j.lines {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// prepare makes a Proxy with one source; nothing runs yet.
func prepare(t *testing.T) *run {
	t.Helper()
	r := &run{
		t: t, sources: []*fakeSource{newSource()}, backend: &fakeBackend{result: backend.Result{Family: cluster.IPv4, Elements: 1}},
		observer: &fakeObserver{}, log: &journal{}, ended: make(chan error, 1),
	}
	r.Config = Config{
		Builder: cluster.NewBuilder("node"), Backend: r.backend, Plan: &plan.Options{}, Observers: []Observer{r.observer},
		MinSyncPeriod: time.Second, SyncPeriod: 30 * time.Second, Measure: r.backend.measure,
	}
	return r
}

// start lets it run until the test's end.
func (r *run) start() {
	r.t.Helper()
	for _, s := range r.sources {
		r.Sources = append(r.Sources, source.Source(s))
	}
	ctx, cancel := context.WithCancel(klog.NewContext(r.t.Context(), funcr.New(r.log.add, funcr.Options{})))
	r.end, r.began = cancel, time.Now()
	go func() { r.ended <- New(r.Config).Run(ctx) }()
	r.t.Cleanup(cancel)
	synctest.Wait()
}

// started prepares and starts a Proxy whose source is complete: it has synced once.
func started(t *testing.T, change ...func(*run)) *run {
	t.Helper()
	r := prepare(t)
	for _, c := range change {
		c(r)
	}
	close(r.sources[0].complete)
	r.start()
	return r
}

// drifts sets what the next checks find.
func (r *run) drifts(found ...backend.Drift) {
	r.backend.set(func(b *fakeBackend) { b.drifts = found })
}

// change makes the cluster another one.
func (r *run) change() {
	r.t.Helper()
	r.changes++
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("service-%d", r.changes)}}
	s.Spec.ClusterIP = "172.30.0.1"
	if err := r.Builder.Update(func(u *cluster.Update) { u.SetService(s) }); err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
}

// pass lets time pass.
func (r *run) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// syncs are the times at which the backend was asked to sync, since the beginning.
func (r *run) syncs() []time.Duration {
	r.backend.mu.Lock()
	defer r.backend.mu.Unlock()
	var times []time.Duration
	for _, at := range r.backend.started {
		times = append(times, at.Sub(r.began))
	}
	return times
}

// services is the number of Services in the plan of a sync, counted from 0.
func (r *run) services(sync int) int {
	r.backend.mu.Lock()
	defer r.backend.mu.Unlock()
	return r.backend.plans[sync].Services.Len()
}

// latest is the plan of the last sync.
func (r *run) latest() *plan.Plan {
	r.backend.mu.Lock()
	defer r.backend.mu.Unlock()
	return r.backend.plans[len(r.backend.plans)-1]
}
