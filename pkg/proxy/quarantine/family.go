package quarantine

import (
	"errors"
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
	// retryShare limits what retries cost: after a Sync of duration t, no port is retried for retryShare*t, but at most
	// for maxPause.
	retryShare = 19
	maxPause   = time.Minute
)

// family is the quarantine of one address family.
type family struct {
	ports map[plan.Port]*quarantined
	// programmed is the plan of the last success, nil before the first.
	programmed *plan.Plan
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
func (f *family) begin(p *plan.Plan, now time.Time) {
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

// attempted updates the quarantine after an attempt to program the plan p, of which tried is the part without quarantined
// ports. It reports whether to attempt it again.
func (f *family) attempted(p, tried *plan.Plan, result *backend.Result) (again bool) {
	if result.Err == nil {
		f.programmed, result.InForce = tried, tried
		for _, q := range f.ports {
			q.kept = slices.DeleteFunc(q.kept, f.isGone)
		}
		return false
	}
	var refused *backend.RefusedError
	switch {
	case !errors.As(result.Err, &refused):
		return false
	case !result.Read:
		return true // the kernel's state may have changed externally: the next attempt reads it
	default:
		return f.quarantine(p, refused)
	}
}

// isGone reports whether a route is no longer in force, because another port has its frontend now.
func (f *family) isGone(route *plan.Route) bool {
	inForce, _ := f.programmed.Frontends.Get(route.Frontend)
	return inForce != route
}

// quarantine adds refused ports, and reports whether the next attempt will differ from the last one.
func (f *family) quarantine(p *plan.Plan, refused *backend.RefusedError) (changed bool) {
	for _, port := range refused.Ports {
		q, known := f.ports[port]
		routes := p.RoutesOf(port)
		switch {
		case len(routes) == 0 || known && !q.retrying && len(q.kept) == 0:
			continue // the attempt did not include the port
		case known && !q.retrying:
			q.kept = nil // its earlier routes are refused as well
		default:
			added := &quarantined{refused: routes, kept: f.earlierRoutes(port, routes), refusedNow: true}
			if known {
				added.delay = q.delay
			}
			f.ports[port] = added
		}
		f.ports[port].cause = refused.Cause
		changed = true
	}
	return changed
}

// earlierRoutes returns the routes of a port that are in force, or nil if they are those that are refused.
func (f *family) earlierRoutes(port plan.Port, refused []*plan.Route) []*plan.Route {
	var routes []*plan.Route
	if q, known := f.ports[port]; known {
		routes = q.kept
	} else if f.programmed != nil {
		routes = f.programmed.RoutesOf(port)
	}
	if slices.Equal(routes, refused) {
		return nil
	}
	return routes
}

// finish ends a Sync: it decides when to retry each quarantined port, and adds them to the result.
func (f *family) finish(result *backend.Result, now time.Time) {
	pause := min(max(minDelay, retryShare*result.Duration), maxPause)
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
