package proxy

import (
	"context"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Quarantine keeps one Service from failing all others: if the kernel refuses the rules of a Service's port, the port is found by trying halves
// of the ports that were to be written, and quarantined; everything else is programmed in the same Sync, and the port is retried later. It
// works on plans, so it is the same for all backends. A backend reports that rules were refused, and which ports had something to write, which at
// a start only the backend knows. It does not report which port is at fault: only iptables names a line, which may be the next one. Each
// attempt is a Sync that reads the kernel, 0.2 to 1.2 s at 10,000 Services; to find one port among 10,000 takes 16 attempts. Tests with both
// backends are in test/faults.
type Quarantine struct {
	backend.Backend
	families map[cluster.Family]*familyQuarantine
}

var _ backend.Backend = (*Quarantine)(nil)

// NewQuarantine returns a Quarantine of a backend, without quarantined ports.
func NewQuarantine(inner backend.Backend) *Quarantine {
	return &Quarantine{Backend: inner, families: map[cluster.Family]*familyQuarantine{}}
}

// Sync programs the plan except for quarantined ports. These keep their earlier rules if they have any. It succeeds if
// everything else is programmed.
func (b *Quarantine) Sync(ctx context.Context, p *plan.Plan, families ...cluster.Family) []backend.Result {
	now := time.Now()
	for _, f := range b.families {
		f.begin(p, now)
	}
	tried := p.Hold(b.held())
	results := b.Backend.Sync(ctx, tried, families...)
	for i := range results {
		f := b.family(results[i].Family)
		f.attempted(tried, &results[i])
		(&search{in: b, of: f, plan: p, result: &results[i]}).run(ctx)
		f.finish(&results[i], time.Now())
	}
	return results
}

// family returns the quarantine of an address family.
func (b *Quarantine) family(name cluster.Family) *familyQuarantine {
	f, ok := b.families[name]
	if !ok {
		f = &familyQuarantine{ports: map[plan.Port]*quarantined{}}
		b.families[name] = f
	}
	return f
}

// held returns the ports of all families that the next attempt leaves out, with the routes that they keep.
func (b *Quarantine) held() map[plan.Port][]*plan.Route {
	held := map[plan.Port][]*plan.Route{}
	for _, f := range b.families {
		for port, q := range f.ports {
			if !q.retrying {
				held[port] = q.kept
			}
		}
		for _, s := range f.aside {
			held[s.port] = s.earlier
		}
	}
	return held
}
