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
	// A quarantined port is retried after firstRetry, then after twice as long each time up to lastRetry.
	firstRetry = time.Second
	lastRetry  = time.Hour
	// retryShare limits what retries cost: after a Sync of duration t, no port is retried for retryShare*t, but at most
	// for maxPause.
	retryShare = 19
	maxPause   = time.Minute
)

// family holds what is set aside in one address family.
type family struct {
	aside map[plan.Port]*refusal
	// inForce is the plan that was programmed last, nil before.
	inForce *plan.Plan
}

// refusal is a port that is set aside.
type refusal struct {
	cause error
	// wanted are the routes that are refused, kept those that stay in force instead.
	wanted, kept []*plan.Route
	// next is when to retry; wait is the delay before that, without regard for changes; soonest is when a change is tried.
	next, soonest time.Time
	wait          time.Duration
	// released reports that the port is part of the current Sync. It is set aside again if that fails.
	released bool
	// fresh reports that the port was refused in the current Sync.
	fresh bool
}

// release includes the ports whose time has come, and forgets those that no longer exist. A port that has changed is tried
// earlier.
func (f *family) release(p *plan.Plan, now time.Time) {
	for port, r := range f.aside {
		wanted := p.RoutesOf(port)
		if len(wanted) == 0 {
			delete(f.aside, port)
			continue
		}
		if !slices.Equal(wanted, r.wanted) && r.soonest.Before(r.next) {
			r.next = r.soonest
		}
		r.wanted = wanted
		r.released = !now.Before(r.next)
	}
}

// again takes the result of an attempt to program a plan, tried, for the plan p, and reports whether another attempt may
// have a better one.
func (f *family) again(p, tried *plan.Plan, result *backend.Result) bool {
	if result.Err == nil {
		f.inForce = tried
		return false
	}
	var refused *backend.RefusedError
	switch {
	case !errors.As(result.Err, &refused):
		return false
	case !result.Read:
		return true // the kernel's state may have changed externally: the next attempt reads it
	default:
		return f.setAside(p, refused)
	}
}

// setAside sets refused ports aside. It reports whether that makes a difference.
func (f *family) setAside(p *plan.Plan, refused *backend.RefusedError) (changed bool) {
	for _, port := range refused.Ports {
		before, was := f.aside[port]
		wanted := p.RoutesOf(port)
		switch {
		case len(wanted) == 0 || was && !before.released && len(before.kept) == 0:
			continue // the port is not part of the attempt
		case was && !before.released:
			before.kept = nil // its earlier rules are refused as well
		default:
			r := &refusal{wanted: wanted, kept: f.earlier(port, wanted), fresh: true}
			if was {
				r.wait = before.wait
			}
			f.aside[port] = r
		}
		f.aside[port].cause = refused.Cause
		changed = true
	}
	return changed
}

// earlier returns the routes of a port that are in force, or nil if they are those that are refused.
func (f *family) earlier(port plan.Port, wanted []*plan.Route) []*plan.Route {
	var routes []*plan.Route
	if r, was := f.aside[port]; was {
		routes = r.kept
	} else if f.inForce != nil {
		routes = f.inForce.RoutesOf(port)
	}
	if slices.Equal(routes, wanted) {
		return nil
	}
	return routes
}

// finish ends a Sync: it decides when to retry what is set aside, and adds that to the result.
func (f *family) finish(result *backend.Result, now time.Time) {
	pause := min(max(firstRetry, retryShare*result.Duration), maxPause)
	for port, r := range f.aside {
		switch {
		case r.released && result.Err == nil:
			delete(f.aside, port)
			continue
		case r.fresh:
			r.wait = min(max(pause, 2*r.wait), lastRetry)
			r.next, r.soonest = now.Add(r.wait), now.Add(pause)
		}
		r.released, r.fresh = false, false
		if again := max(r.next.Sub(now), time.Millisecond); result.Again == 0 || again < result.Again {
			result.Again = again
		}
		result.Refused = append(result.Refused, backend.Refusal{Service: port.Service, Port: port.String(), Kept: len(r.kept) > 0, Cause: r.cause})
	}
	slices.SortFunc(result.Refused, func(a, b backend.Refusal) int { return strings.Compare(a.Port, b.Port) })
}
