package conntrack

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/conntrack"
	"github.com/seed-11a05479/kube-proxy/pkg/logonce"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

const (
	// restShare is the pause after a sweep as a multiple of its duration, up to longestPause: sweeps use at most a
	// tenth of a core, as long as one takes less than a ninth of longestPause.
	restShare = 9
	// longestPause is also the longest time that a flow which becomes stale just after a sweep is kept. It is only
	// reached with millions of entries.
	longestPause = 5 * time.Second
	// firstRetry is the pause after a failed sweep. It doubles with each failure in a row, up to lastRetry.
	firstRetry = 500 * time.Millisecond
	lastRetry  = 5 * time.Minute
	// calm is the least time between two log lines about failed sweeps, whose errors have numbers in them.
	calm = 10 * time.Second
)

// Config configures a Reconciler.
type Config struct {
	// Families are the families that the backend serves.
	Families []cluster.Family
	Table    conntrack.Table
	// Swept is called after each sweep with its duration and the number of deleted entries. It must not block.
	Swept func(family cluster.Family, took time.Duration, deleted int)
	// Resets ends TCP connections and SCTP associations to endpoints that are gone; nil leaves them alone.
	Resets *Resets
}

// Reconciler deletes entries of the kernel's table that keep clients from their Services (see the package's comment). It is
// a proxy.Observer. The cost of Synced is proportional to the change; Run does the work.
type Reconciler struct {
	proxy.Ignore
	config Config
	wake   chan struct{}

	mu sync.Mutex
	// plans holds the plan that each family's rules implement, dirty the work that is due.
	plans map[cluster.Family]*plan.Plan
	dirty map[cluster.Family]work
	// next is the newest plan: the rules implement it already, or are being written.
	next *plan.Plan
	// drifted holds the families whose rules may have been others since their last successful sync, refused the ports whose rules
	// the kernel refused in it.
	drifted map[cluster.Family]bool
	refused map[cluster.Family][]backend.Refusal

	// burst is what Run has reset and not logged yet, aborting whether it has logged that sockets cannot be aborted.
	burst    burst
	aborting logonce.Condition
}

var _ proxy.Observer = (*Reconciler)(nil)

// work describes the entries to check.
type work struct {
	udp, tcp, sctp bool
	// gone are UDP frontends that no longer belong to a Service.
	gone map[plan.Frontend]bool
	// left are endpoints that a Service with TCP ports no longer lists, if their connections are to be reset.
	left map[netip.Addr]bool
}

// maxGone is how many frontends that no longer belong to a Service are remembered while sweeps fail, in a family, and how many
// endpoints that left. The flows of others are left to expire: they delay only clients of Services that were deleted.
const maxGone = 100_000

// any reports whether there is work.
func (w work) any() bool { return w.udp || w.tcp || w.sctp || len(w.left) > 0 }

// and returns the union of w and o, with at most maxGone frontends and endpoints. It may modify the maps of w.
func (w work) and(o work) work {
	return work{udp: w.udp || o.udp, tcp: w.tcp || o.tcp, sctp: w.sctp || o.sctp, gone: union(w.gone, o.gone), left: union(w.left, o.left)}
}

// union adds the keys of b to a, up to maxGone.
func union[K comparable](a, b map[K]bool) map[K]bool {
	if a == nil {
		a = make(map[K]bool, min(len(b), maxGone))
	}
	for key := range b {
		if len(a) >= maxGone {
			break
		}
		a[key] = true
	}
	return a
}

// New returns a Reconciler; Run starts it.
func New(config Config) *Reconciler {
	r := &Reconciler{
		config: config, wake: make(chan struct{}, 1), next: &plan.Plan{},
		plans: map[cluster.Family]*plan.Plan{}, dirty: map[cluster.Family]work{}, drifted: map[cluster.Family]bool{},
		refused: map[cluster.Family][]backend.Refusal{},
	}
	for _, family := range config.Families {
		r.plans[family] = &plan.Plan{}
	}
	return r
}

// Planned records the plan that is about to be programmed: its endpoints may have flows before Synced is called.
func (r *Reconciler) Planned(p *plan.Plan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next = p
}

// Drifted records that packets may not have passed our rules. The sync that follows repairs them.
func (r *Reconciler) Drifted(d backend.Drift) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drifted[d.Family] = true
}

// Synced records what may have become stale in the families that were programmed.
func (r *Reconciler) Synced(s *proxy.Sync) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, result := range s.Results {
		if r.plans[result.Family] == nil {
			continue
		}
		if result.Err != nil { // flows may go to endpoints of the plan that failed
			r.drifted[result.Family] = true
			continue
		}
		r.plans[result.Family] = s.Plan
		w := r.compare(s.Programmed[result.Family], s.Plan, result.Family)
		// A refused port was served by its earlier rules, or not at all, while the plan was in force.
		if r.drifted[result.Family] || !slices.EqualFunc(r.refused[result.Family], result.Refused, sameRefusal) {
			w.udp, w.tcp = true, true
			delete(r.drifted, result.Family)
		}
		r.refused[result.Family] = result.Refused
		r.add(result.Family, work{udp: w.udp, tcp: w.tcp, gone: w.gone})
		if later := (work{sctp: w.sctp, left: w.left}); later.any() {
			time.AfterFunc(moves, func() { r.addLocked(result.Family, later) })
		}
	}
}

// sameRefusal reports whether a port is refused as before.
func sameRefusal(a, b backend.Refusal) bool { return a.Port == b.Port && a.Kept == b.Kept }

// add merges work into the pending work and wakes Run. The caller holds the lock.
func (r *Reconciler) add(family cluster.Family, w work) {
	if !w.any() {
		return
	}
	r.dirty[family] = r.dirty[family].and(w)
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// addLocked is add for a caller without the lock.
func (r *Reconciler) addLocked(family cluster.Family, w work) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(family, w)
}

// compare returns the work after a plan has replaced another in a family.
func (r *Reconciler) compare(changes proxy.Changes, after *plan.Plan, family cluster.Family) work {
	w := work{gone: map[plan.Frontend]bool{}, left: map[netip.Addr]bool{}}
	for frontend, change := range changes.Frontends {
		if frontend.Family() != family {
			continue
		}
		switch frontend.Protocol {
		case cluster.UDP:
			w.udp = w.udp || redirected(change)
			if !change.Is {
				w.gone[frontend] = true
			}
		case cluster.TCP:
			w.tcp = w.tcp || served(change.After) && !served(change.Before)
		case cluster.SCTP:
			w.sctp = w.sctp || r.config.Resets != nil && !change.Was
		}
	}
	if r.config.Resets != nil {
		for _, change := range changes.Services {
			w.sctp = w.sctp || len(plan.LosesEndpoints(change.Before, change.After, cluster.SCTP, family)) > 0
			for _, addr := range plan.LosesEndpoints(change.Before, change.After, cluster.TCP, family) {
				w.left[addr] = true
			}
		}
	}
	for _, change := range changes.Decisions {
		w.udp = w.udp || plan.EndsFlows(change.Before, change.After, family)
	}
	if gained(changes.Before.Node, after.Node, family) {
		w.udp, w.tcp = true, true
	}
	return w
}

// redirected reports whether a change of a UDP frontend may make a flow stale. An additional endpoint does not. The
// first one does, and so does a different verdict for refused packets: a packet may arrive while the frontend is
// neither balanced nor refused, and the kernel then tracks a flow to the frontend's own address.
func redirected(c cluster.Change[*plan.Route]) bool {
	same := c.Was && c.Is && c.Before.Service == c.After.Service && c.Before.Port() == c.After.Port()
	return !same || c.Before.Verdict != plan.Balance && c.After.Verdict != c.Before.Verdict
}

// served reports whether any connections to a frontend are sent to an endpoint; the route may be nil.
func served(route *plan.Route) bool {
	return route != nil && (route.Verdict == plan.Balance || route.ShortCut != nil)
}

// gained reports whether node ports are served on an additional address, which may already have flows.
func gained(before, after *plan.Node, family cluster.Family) bool {
	if before == nil || before == after { // without a plan before, every frontend is new anyway
		return false
	}
	return slices.ContainsFunc(after.NodePortAddrs, func(addr netip.Addr) bool {
		_, had := slices.BinarySearchFunc(before.NodePortAddrs, addr, netip.Addr.Compare)
		return cluster.FamilyOf(addr) == family && !had
	})
}

// Run sweeps when there is work, until ctx ends. Work that arrives during a sweep is combined into the next one. Work that failed is
// tried again with new work, or with growing delays: what fails in one family must not delay the other.
func (r *Reconciler) Run(ctx context.Context) error {
	retries := wait.Backoff{Duration: firstRetry, Factor: 2, Cap: lastRetry, Steps: math.MaxInt}
	retry, failing := retries, logonce.Condition{Again: logonce.Reminder, Calm: calm}
	var due <-chan time.Time // of what failed
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.burst.due:
			r.burst.log(ctx)
			continue
		case <-r.wake:
		case <-due:
		}
		took, err := r.sweepAll(ctx)
		pause := min(longestPause, restShare*took)
		if r.burst.limited {
			pause = max(pause, resetPause)
		}
		due = nil
		if err != nil && ctx.Err() == nil {
			again := retry.Step()
			due = time.After(again)
			if failing.Changed(err.Error()) {
				klog.FromContext(ctx).Error(err, "Failed to delete stale connection tracking entries; some clients may not reach their Services", "retryIn", again)
			}
		} else if err == nil {
			retry = retries
			if failing.Ended() {
				klog.FromContext(ctx).Info("Stale connection tracking entries are deleted again")
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// search is a sweep that is due, and the work that it does.
type search struct {
	kind     conntrack.Kind
	work     work
	unwanted func(*conntrack.Flow) bool
}

// searches returns the sweeps that do a family's work.
func (r *Reconciler) searches(ctx context.Context, family cluster.Family, w work) (all []search) {
	if w.udp {
		all = append(all, search{conntrack.UDP, work{udp: true, gone: w.gone}, func(flow *conntrack.Flow) bool {
			inForce, next := r.current(family)
			return w.stale(inForce, flow) && (next == inForce || w.stale(next, flow))
		}})
	}
	if w.tcp {
		all = append(all, search{conntrack.UnansweredTCP, work{tcp: true}, func(flow *conntrack.Flow) bool {
			inForce, _ := r.current(family)
			return early(inForce, flow)
		}})
	}
	if w.sctp {
		all = append(all, search{conntrack.TranslatedSCTP, work{sctp: true}, r.lost(family, cluster.SCTP)})
	}
	if len(w.left) > 0 {
		all = append(all, search{conntrack.TranslatedTCP, work{left: w.left}, r.resets(ctx, family, w.left)})
	}
	return all
}

// sweepAll does the work of all families, and returns how long it worked. Work that failed remains pending, and what exceeds the limit
// of resets.
func (r *Reconciler) sweepAll(ctx context.Context) (took time.Duration, _ error) {
	r.mu.Lock()
	due := r.dirty
	r.dirty = map[cluster.Family]work{}
	r.mu.Unlock()
	failed := []error{r.config.Table.Settle(ctx)}
	began := time.Now()
	r.burst.limited = false
	for _, family := range r.config.Families {
		var left work
		for _, search := range r.searches(ctx, family, due[family]) {
			if err := r.sweep(ctx, family, search.kind, search.unwanted); err != nil {
				failed = append(failed, err)
				left = left.and(search.work)
			}
		}
		if left.any() {
			r.mu.Lock()
			r.dirty[family] = r.dirty[family].and(left)
			r.mu.Unlock()
		}
	}
	return time.Since(began), errors.Join(failed...)
}

// current returns the plan that a family's rules implement, and the one that they may implement in part. Both may change during a
// sweep, which takes seconds with millions of entries, and a flow to an endpoint that was added meanwhile must stay.
func (r *Reconciler) current(family cluster.Family) (inForce, next *plan.Plan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.plans[family], r.next
}

// sweep reads the table once and deletes the unwanted flows.
func (r *Reconciler) sweep(ctx context.Context, family cluster.Family, kind conntrack.Kind, unwanted func(*conntrack.Flow) bool) error {
	table := conntrack.IPv4
	if family == cluster.IPv6 {
		table = conntrack.IPv6
	}
	began := time.Now()
	done, err := r.config.Table.Sweep(ctx, table, kind, unwanted)
	took := time.Since(began)
	r.config.Swept(family, took, done.Deleted)
	if kind == conntrack.TranslatedTCP {
		r.done(family, done.Deleted)
	}
	klog.FromContext(ctx).V(4).Info("Checked for stale connection tracking entries", "family", family, "kind", kind, "took", took,
		"seen", done.Seen, "deleted", done.Deleted)
	if err == nil && done.Partial {
		err = fmt.Errorf("reading the connection tracking table of %s was interrupted after %d entries; some may have been missed", family, done.Seen)
	}
	return err
}

// stale reports whether a UDP flow goes where the plan does not let its client go. The flow of a Service's address must go to
// one of the endpoints that its client may use; the flow of an address that a Service had before must not be translated.
func (w work) stale(p *plan.Plan, flow *conntrack.Flow) bool {
	if route := p.RouteTo(flow.Destination, cluster.UDP); route != nil {
		return !p.Keeps(route, flow.Source.Addr(), flow.ReplySource)
	}
	for frontend := range p.Meets(flow.Destination, cluster.UDP) {
		if w.gone[frontend] {
			return flow.Translated()
		}
	}
	return false
}

// early reports whether an unanswered TCP connection is for a frontend that is served now: no rule matched its SYN.
func early(p *plan.Plan, flow *conntrack.Flow) bool {
	return served(p.RouteTo(flow.Destination, cluster.TCP))
}
