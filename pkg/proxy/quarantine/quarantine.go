// Package quarantine keeps one Service from failing all others: if the kernel refuses the rules of a Service's port, the port
// is quarantined, everything else is programmed in the same Sync, and the port is retried later. It works on plans, so it is
// the same for all backends, which only report the refused ports. Its tests are in test/faults.
package quarantine

import (
	"context"
	"slices"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// maxAttempts limits the attempts in one Sync, because the kernel's state is read again after each failed one. The next
// Sync continues with what this one found.
const maxAttempts = 32

// Backend is a backend.Backend that quarantines the ports that another one reports as refused.
type Backend struct {
	backend.Backend
	families map[cluster.Family]*family
}

var (
	_ backend.Backend     = (*Backend)(nil)
	_ backend.Auditor     = (*Backend)(nil)
	_ backend.EarlyReader = (*Backend)(nil)
)

// New returns a Backend around another one, without quarantined ports.
func New(inner backend.Backend) *Backend {
	return &Backend{Backend: inner, families: map[cluster.Family]*family{}}
}

// ReadEarly implements [backend.EarlyReader]. It does nothing if the other backend does not.
func (b *Backend) ReadEarly(ctx context.Context) {
	if reader, ok := b.Backend.(backend.EarlyReader); ok {
		reader.ReadEarly(ctx)
	}
}

// Sync programs the plan except for quarantined ports. These keep their earlier rules if they have any. It succeeds if
// everything else is programmed.
func (b *Backend) Sync(ctx context.Context, p *plan.Plan, families ...cluster.Family) []backend.Result {
	now := time.Now()
	for _, f := range b.families {
		f.begin(p, now)
	}
	var results []backend.Result
	for attempt := 1; ; attempt++ {
		tried := p.Hold(b.held())
		var again []cluster.Family
		for _, result := range b.Backend.Sync(ctx, tried, families...) {
			if b.family(result.Family).attempted(p, tried, &result) && attempt < maxAttempts {
				again = append(again, result.Family)
			}
			results = add(results, result)
		}
		if families = again; len(again) == 0 {
			break
		}
	}
	for i := range results {
		b.family(results[i].Family).finish(&results[i], time.Now())
	}
	return results
}

// Auditing is that of the other Backend; false if it does not audit.
func (b *Backend) Auditing() bool {
	auditor, ok := b.Backend.(backend.Auditor)
	return ok && auditor.Auditing()
}

// family returns the quarantine of an address family.
func (b *Backend) family(name cluster.Family) *family {
	f, ok := b.families[name]
	if !ok {
		f = &family{ports: map[plan.Port]*quarantined{}}
		b.families[name] = f
	}
	return f
}

// held returns the quarantined ports of all families, except those that are retried now, with the routes that they keep.
func (b *Backend) held() map[plan.Port][]*plan.Route {
	held := map[plan.Port][]*plan.Route{}
	for _, f := range b.families {
		for port, q := range f.ports {
			if !q.retrying {
				held[port] = q.kept
			}
		}
	}
	return held
}

// add adds the result of an attempt to the results, in which it replaces that of the family's earlier attempt.
func add(results []backend.Result, last backend.Result) []backend.Result {
	at := slices.IndexFunc(results, func(r backend.Result) bool { return r.Family == last.Family })
	if at < 0 {
		return append(results, last)
	}
	before := &results[at]
	last.Duration += before.Duration
	last.Read = last.Read || before.Read
	last.Elements += before.Elements
	last.Rules += before.Rules
	last.Failed += before.Failed + 1
	results[at] = last
	return results
}
