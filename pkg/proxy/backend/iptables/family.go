package iptables

import (
	"context"
	"errors"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// family is one address family's tables.
type family struct {
	renderer   renderer
	state      *state
	drift      drift
	quarantine quarantine
	stuck      map[chainName]bool
	settings   Settings
}

func newFamily(door ipt.Tables, opts Options, settings Settings) *family {
	is := cluster.IPv4
	if door.Family() == ipt.IPv6 {
		is = cluster.IPv6
	}
	s := &state{family: is, door: door}
	return &family{
		renderer: renderer{family: is, opts: opts, can: probe(door.Features(), settings)},
		state:    s, drift: newDrift(s), stuck: map[chainName]bool{}, settings: settings,
	}
}

// maxRefusals limits the number of ports that are quarantined in one sync, because the tables are read again after each.
const maxRefusals = 16

// sync programs the plan in one family.
func (f *family) sync(ctx context.Context, p *plan.Plan) (result backend.Result) {
	start, before := time.Now(), f.quarantine.ports
	var refusals []error
	defer func() {
		if result.Err != nil { // the result of retries is not known
			f.quarantine.restore(before)
		}
		f.quarantine.report(len(refusals) > 0, time.Now(), &result)
		result.Err = errors.Join(append(refusals, result.Err)...)
		result.Family, result.Duration = f.state.family, time.Since(start)
	}()
	f.quarantine.release(p, start)
	a := &applier{ctx: ctx, door: f.state.door, settings: f.settings, stuck: f.stuck,
		writer: newWriter(f.state.family, p.Node, f.renderer.opts, f.renderer.can)}
	result.Read = f.state.held == nil
	for {
		unknown := f.state.held == nil
		have, err := f.state.take(ctx)
		if err != nil {
			result.Err = err
			return result
		}
		f.renderer.without = f.quarantine.ports
		want := f.renderer.render(p, f.state.written.Load())
		patch := diff(have, &want.ruleset)
		err = a.apply(patch)
		result.Rules = a.rules
		var refused *refusal
		switch {
		case err == nil:
			result.Tables = f.state.wrote(want, patch)
			f.drift.wrote(ctx, patch, unknown)
			return result
		case errors.As(err, &refused) && len(refusals) < maxRefusals:
			refusals = append(refusals, err)
			f.quarantine.add(refused, want)
		default:
			result.Err = err
			return result
		}
	}
}
