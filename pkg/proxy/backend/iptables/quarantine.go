package iptables

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Quarantined ports are retried after firstRetry, then after twice as long each time up to lastRetry, because the
// tables are read for each attempt.
const (
	firstRetry = time.Minute
	lastRetry  = time.Hour
)

// quarantine holds the ports of Services that iptables refuses, and when they are retried. Its maps are immutable.
type quarantine struct {
	ports map[portKey]*leftOut
	// again is the time of the next attempt, after the delay before it.
	again time.Time
	after time.Duration
}

// release removes the ports that have changed since they were refused, or all of them if it is time to retry.
func (q *quarantine) release(p *plan.Plan, now time.Time) {
	ports := map[portKey]*leftOut{}
	for key, left := range q.ports {
		changed := slices.ContainsFunc(left.routes, func(r *plan.Route) bool {
			current, ok := p.Frontends.Get(r.Frontend)
			return !ok || current != r
		})
		if !changed && now.Before(q.again) {
			ports[key] = left
		}
	}
	q.ports = ports
}

// add adds the port of a refusal.
func (q *quarantine) add(r *refusal, rendered *rendering) {
	ports := maps.Clone(q.ports)
	if port, ok := rendered.ports.Get(r.owner); ok {
		ports[r.owner] = &leftOut{port.routes, r.cause}
	}
	q.ports = ports
}

// restore adds ports that were quarantined before.
func (q *quarantine) restore(before map[portKey]*leftOut) {
	ports := maps.Clone(before)
	maps.Copy(ports, q.ports)
	q.ports = ports
}

// report delays the next attempt if any port was refused, and adds the quarantined ports and the time of that attempt
// to a result.
func (q *quarantine) report(refused bool, now time.Time, result *backend.Result) {
	if len(q.ports) == 0 {
		q.after = 0
		return
	}
	if refused {
		q.after = min(max(firstRetry, 2*q.after), lastRetry)
		q.again = now.Add(q.after)
	}
	result.Again = max(q.again.Sub(now), time.Millisecond) // the time may have come during this sync
	for key, left := range q.ports {
		result.Refused = append(result.Refused, backend.Refusal{Service: left.routes[0].Service, Port: key.String(), Cause: left.cause})
	}
	slices.SortFunc(result.Refused, func(a, b backend.Refusal) int { return strings.Compare(a.Port, b.Port) })
}
