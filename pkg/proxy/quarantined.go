package proxy

import (
	"slices"
	"strings"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

const (
	// A quarantined port is retried after minDelay, and then after twice as long each time, up to maxDelay.
	minDelay = time.Second
	maxDelay = time.Hour
	// pauseShare limits what retries cost: after a Sync of duration t, no port is retried for pauseShare*t, but at most
	// for maxPause.
	pauseShare = 19
	maxPause   = time.Minute
)

// familyQuarantine is the quarantine of one address family.
type familyQuarantine struct {
	ports map[plan.Port]*quarantined
	// programmed is the plan of the last success, nil before the first.
	programmed *plan.Plan
	// aside are ports that the next attempt of a search leaves out.
	aside []suspect
}

// suspect is a port whose rules may be refused, with the routes that stay in force if they are.
type suspect struct {
	port    plan.Port
	earlier []*plan.Route
}

// quarantined is the state of a quarantined port.
type quarantined struct {
	cause error
	// refused are the port's routes in the current plan; kept are its routes that stay in force instead, if any.
	refused, kept []*plan.Route
	// retry is the time of the next retry, delay after the refusal. If the port changes, it is retried at onChange.
	retry, onChange time.Time
	delay           time.Duration
	// retrying reports that the current Sync includes the port. It stays in quarantine if that fails.
	retrying bool
	// refusedNow reports that the port was refused in the current Sync.
	refusedNow bool
}

// begin begins a Sync of a plan: it chooses the ports to retry, and forgets those that no longer exist.
func (f *familyQuarantine) begin(p *plan.Plan, now time.Time) {
	for port, q := range f.ports {
		routes := p.RoutesOf(port)
		if len(routes) == 0 {
			delete(f.ports, port)
			continue
		}
		if !slices.Equal(routes, q.refused) && q.onChange.Before(q.retry) {
			q.retry = q.onChange
		}
		q.refused = routes
		q.retrying = !now.Before(q.retry)
	}
}

// attempted notes the result of an attempt to program a plan.
func (f *familyQuarantine) attempted(tried *plan.Plan, result *backend.Result) {
	if result.Err != nil {
		return
	}
	f.programmed, result.InForce = tried, tried
	for _, q := range f.ports {
		q.kept = slices.DeleteFunc(slices.Clone(q.kept), f.isGone) // a search may hold them
	}
}

// isGone reports whether a route is no longer in force, because another port has its frontend now.
func (f *familyQuarantine) isGone(route *plan.Route) bool {
	inForce, _ := f.programmed.Frontends.Get(route.Frontend)
	return inForce != route
}

// suspects returns those of the ports that the last attempt to program p included. Those whose rules need more of the kernel than others
// are the last: if a module is missing, the others are accepted before them.
func (f *familyQuarantine) suspects(p *plan.Plan, ports []plan.Port) (suspects []suspect) {
	var demanding []suspect
	for _, port := range slices.SortedFunc(slices.Values(ports), plan.Port.Compare) {
		routes, q := p.RoutesOf(port), f.ports[port]
		s := suspect{port: port}
		switch {
		case len(routes) == 0 || q != nil && !q.retrying && len(q.kept) == 0:
			continue
		case q != nil && q.retrying:
			s.earlier = q.kept
		case q == nil && f.programmed != nil:
			if earlier := f.programmed.RoutesOf(port); !slices.Equal(earlier, routes) {
				s.earlier = earlier
			}
		}
		if slices.ContainsFunc(routes, func(r *plan.Route) bool { return r.Affinity != nil || len(r.SourceRanges) > 0 }) {
			demanding = append(demanding, s)
			continue
		}
		suspects = append(suspects, s)
	}
	return append(suspects, demanding...)
}

// quarantine adds a port whose rules were refused. If those are its earlier ones already, it keeps none.
func (f *familyQuarantine) quarantine(p *plan.Plan, s suspect, cause error) {
	q, known := f.ports[s.port]
	if !known {
		q = &quarantined{refused: p.RoutesOf(s.port), retrying: true}
		f.ports[s.port] = q
	}
	q.kept, q.cause = slices.DeleteFunc(slices.Clone(s.earlier), f.isGone), cause
	q.refusedNow, q.retrying = q.refusedNow || q.retrying, false
}

// finish ends a Sync: it decides when to retry each quarantined port, and adds them to the result.
func (f *familyQuarantine) finish(result *backend.Result, now time.Time) {
	pause := min(max(minDelay, pauseShare*result.Duration), maxPause)
	for port, q := range f.ports {
		switch {
		case q.retrying && result.Err == nil:
			delete(f.ports, port)
			continue
		case q.refusedNow:
			q.delay = min(max(pause, 2*q.delay), maxDelay)
			q.retry, q.onChange = now.Add(q.delay), now.Add(pause)
		}
		q.retrying, q.refusedNow = false, false
		if again := max(q.retry.Sub(now), time.Millisecond); result.Again == 0 || again < result.Again {
			result.Again = again
		}
		result.Refused = append(result.Refused, backend.Refusal{Family: port.Family, Service: port.Service, Port: port.String(), Kept: len(q.kept) > 0, Cause: q.cause})
	}
	slices.SortFunc(result.Refused, func(a, b backend.Refusal) int { return strings.Compare(a.Port, b.Port) })
}
