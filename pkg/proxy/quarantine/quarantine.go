// Package quarantine keeps one Service from failing all others: a port of a Service whose rules the kernel refuses is set
// aside, everything else is programmed in the same Sync, and the port is retried later. It works on plans, so it is the
// same for all backends, which only report which ports are refused.
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

// Backend is a backend.Backend that sets aside what another one reports as refused.
type Backend struct {
	backend.Backend
	families map[cluster.Family]*family
}

var _ backend.Backend = (*Backend)(nil)

// New returns a Backend without quarantined ports.
func New(of backend.Backend) *Backend {
	return &Backend{Backend: of, families: map[cluster.Family]*family{}}
}

// Sync programs the plan except for quarantined ports. These keep their earlier rules if they have any. It succeeds if
// everything else is programmed.
func (b *Backend) Sync(ctx context.Context, p *plan.Plan, families ...cluster.Family) []backend.Result {
	now := time.Now()
	for _, f := range b.families {
		f.release(p, now)
	}
	var results []backend.Result
	for attempt := 1; ; attempt++ {
		tried := p.Hold(b.held())
		var again []cluster.Family
		for _, result := range b.Backend.Sync(ctx, tried, families...) {
			if b.of(result.Family).again(p, tried, &result) && attempt < maxAttempts {
				again = append(again, result.Family)
			}
			results = add(results, result)
		}
		if families = again; len(again) == 0 {
			break
		}
	}
	for i := range results {
		b.of(results[i].Family).finish(&results[i], time.Now())
	}
	return results
}

func (b *Backend) of(name cluster.Family) *family {
	f, ok := b.families[name]
	if !ok {
		f = &family{aside: map[plan.Port]*refusal{}}
		b.families[name] = f
	}
	return f
}

// held returns the routes of the ports that are set aside, in all families.
func (b *Backend) held() map[plan.Port][]*plan.Route {
	held := map[plan.Port][]*plan.Route{}
	for _, f := range b.families {
		for port, r := range f.aside {
			if !r.released {
				held[port] = r.kept
			}
		}
	}
	return held
}

// add adds the result of an attempt to those of the earlier attempts.
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
