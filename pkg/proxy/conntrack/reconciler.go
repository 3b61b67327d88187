package conntrack

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/conntrack"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

const (
	// longestPause bounds the time between two sweeps while changes keep coming. A flow is not lost for longer than
	// this and what two sweeps take.
	longestPause = time.Second
	// restShare is how many times as long as a sweep took the next one is put off, up to longestPause.
	restShare = 9
	// firstRetry doubles with each failure in a row, up to lastRetry.
	firstRetry = 500 * time.Millisecond
	lastRetry  = 5 * time.Minute
)

// Config is what a Reconciler is made of.
type Config struct {
	// Families are those that the backend serves.
	Families []cluster.Family
	Table    conntrack.Table
	// Swept is told how long each sweep took, and how many entries it deleted. It must not block.
	Swept func(family cluster.Family, took time.Duration, deleted int)
}

// Reconciler takes stale UDP flows out of the kernel's table. It is a proxy.Observer: being told costs what changed;
// the work is done by Run, on the newest plan.
type Reconciler struct {
	config Config
	wake   chan struct{}

	mu sync.Mutex
	// plans are those whose rules each family has, dirty the work that they made.
	plans map[cluster.Family]*plan.Plan
	dirty map[cluster.Family]*work
}

// work is a reason to sweep.
type work struct {
	// gone are UDP frontends that no Service has any more.
	gone map[plan.Frontend]bool
}

// New makes a Reconciler; Run starts it.
func New(config Config) *Reconciler {
	r := &Reconciler{
		config: config, wake: make(chan struct{}, 1),
		plans: map[cluster.Family]*plan.Plan{}, dirty: map[cluster.Family]*work{},
	}
	for _, family := range config.Families {
		r.plans[family] = &plan.Plan{}
	}
	return r
}

// Queued does nothing: what is not in the rules yet would be undone by the next packet.
func (r *Reconciler) Queued(time.Time) {}

// Drifted does nothing: the sync that follows tells.
func (r *Reconciler) Drifted(backend.Drift) {}

// Synced notes what may have become stale in the families whose rules have been written.
func (r *Reconciler) Synced(s *proxy.Sync) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, result := range s.Results {
		before := r.plans[result.Family]
		if result.Err != nil || before == nil {
			continue
		}
		r.plans[result.Family] = s.Plan
		if w := compare(before, s.Plan, result.Family); w != nil {
			r.add(result.Family, w)
		}
	}
}

// add joins work to what there is, and wakes Run. The caller holds the lock.
func (r *Reconciler) add(family cluster.Family, w *work) {
	if known := r.dirty[family]; known != nil {
		maps.Copy(w.gone, known.gone)
	}
	r.dirty[family] = w
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// compare tells what may have become stale from one plan to the next in a family; nil is nothing. An endpoint more
// makes no flow stale. The first one may, or another way of refusing: a packet that was on its way is neither sent on nor
// refused any more, and the kernel remembers a flow to the frontend itself.
func compare(before, after *plan.Plan, family cluster.Family) *work {
	w, stale := &work{gone: map[plan.Frontend]bool{}}, false
	for frontend, change := range cluster.Changes(before.Frontends, after.Frontends) {
		if frontend.Protocol != cluster.UDP || frontend.Family() != family {
			continue
		}
		if !change.Is {
			w.gone[frontend] = true
		}
		same := change.Was && change.Is && change.Before.Service == change.After.Service && change.Before.Port == change.After.Port
		stale = stale || !same || change.Before.Verdict != plan.Balance && change.After.Verdict != change.Before.Verdict
	}
	for _, change := range cluster.Changes(before.Services, after.Services) {
		stale = stale || lost(change.Before, change.After, family)
	}
	if stale || gained(before.Node, after.Node, family) {
		return w
	}
	return nil
}

// lost tells whether an endpoint no longer serves one of the Service's UDP ports.
func lost(before, after *plan.Service, family cluster.Family) bool {
	if before == nil {
		return false
	}
	for _, had := range before.Serving {
		if had.Family != family {
			continue
		}
		has := after.ServingOn(had.Port, family)
		if has == nil || !within(had.Endpoints, has.Endpoints) {
			return true
		}
	}
	return false
}

// gained tells whether node ports are served on an address more: a flow to it may have begun before.
func gained(before, after *plan.Node, family cluster.Family) bool {
	of := func(addrs []netip.Addr) (all []netip.Addr) {
		for _, addr := range addrs {
			if cluster.FamilyOf(addr) == family {
				all = append(all, addr)
			}
		}
		return all
	}
	// At first every frontend is new anyway.
	return before != nil && before != after && !within(of(after.NodePortAddrs), of(before.NodePortAddrs))
}

// within tells whether a sorted list holds all of another one.
func within[T interface{ Compare(T) int }](part, whole []T) bool {
	for _, item := range part {
		for len(whole) > 0 && whole[0].Compare(item) < 0 {
			whole = whole[1:]
		}
		if len(whole) == 0 || whole[0].Compare(item) != 0 {
			return false
		}
	}
	return true
}

// Run sweeps when there is work, until ctx ends. Work that comes while it sweeps is done in one go afterwards.
func (r *Reconciler) Run(ctx context.Context) error {
	retry := firstRetry
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		}
		began := time.Now()
		err := r.sweepAll(ctx)
		pause := min(longestPause, restShare*time.Since(began))
		if err != nil && ctx.Err() == nil {
			pause, retry = retry, min(2*retry, lastRetry)
			klog.FromContext(ctx).Error(err, "Cannot take all stale UDP flows away; some clients may send to endpoints that are gone", "retryIn", pause)
		} else {
			retry = firstRetry
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// sweepAll does the work of all families. What could not be done remains work.
func (r *Reconciler) sweepAll(ctx context.Context) error {
	var failed error
	for _, family := range r.config.Families {
		r.mu.Lock()
		w, p := r.dirty[family], r.plans[family]
		delete(r.dirty, family)
		r.mu.Unlock()
		if w == nil {
			continue
		}
		if err := r.sweep(ctx, family, p, w); err != nil {
			failed = err
			r.mu.Lock()
			r.add(family, w)
			r.mu.Unlock()
		}
	}
	return failed
}

// sweep goes through the table once, and takes away what the plan does not want.
func (r *Reconciler) sweep(ctx context.Context, family cluster.Family, p *plan.Plan, w *work) error {
	table := conntrack.IPv4
	if family == cluster.IPv6 {
		table = conntrack.IPv6
	}
	began := time.Now()
	done, err := r.config.Table.SweepUDP(ctx, table, func(flow *conntrack.Flow) bool { return w.stale(p, flow) })
	took := time.Since(began)
	r.config.Swept(family, took, done.Deleted)
	klog.FromContext(ctx).V(2).Info("Looked for stale UDP flows", "family", family, "took", took, "seen", done.Seen, "deleted", done.Deleted)
	if err == nil && done.Partial {
		err = fmt.Errorf("the table of tracked %s connections changed while it was read: %d entries were seen, some may have been missed", family, done.Seen)
	}
	return err
}

// stale tells whether a flow goes where the plan would never have sent it. One to an address that a Service has must
// go to one of its endpoints; one to an address that a Service had must not be translated any more.
func (w *work) stale(p *plan.Plan, flow *conntrack.Flow) bool {
	if route := p.RouteTo(flow.Destination, cluster.UDP); route != nil {
		return !p.Serves(route, flow.ReplySource)
	}
	for frontend := range p.Meets(flow.Destination, cluster.UDP) {
		if w.gone[frontend] {
			return flow.Translated()
		}
	}
	return false
}
