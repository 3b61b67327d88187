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
	renderer renderer
	state    *state
	drift    drift
	stuck    map[chainName]bool
	settings Settings
}

func newFamily(door ipt.Tables, opts Options, settings Settings) *family {
	is := cluster.IPv4
	if door.Family() == ipt.IPv6 {
		is = cluster.IPv6
	}
	s := &state{family: is, door: door}
	return &family{
		renderer: renderer{family: is, opts: opts, can: probe(door.Features(), opts, settings)},
		state:    s, drift: newDrift(s), stuck: map[chainName]bool{}, settings: settings,
	}
}

// sync programs the plan in one family.
func (f *family) sync(ctx context.Context, p *plan.Plan) (result backend.Result) {
	start, unknown := time.Now(), f.state.held == nil
	defer func() { result.Family, result.Read, result.Duration = f.state.family, unknown, time.Since(start) }()
	want := f.renderer.render(p, f.state.written.Load())
	have, err := f.state.take(ctx, &want.ruleset)
	if err != nil {
		result.Err = err
		return result
	}
	patch := diff(have.ruleset, &want.ruleset)
	a := &applier{ctx: ctx, door: f.state.door, settings: f.settings, stuck: f.stuck,
		writer: newWriter(f.state.family, p.Node, f.renderer.opts, f.renderer.can)}
	if err := a.apply(patch); err != nil {
		if refused, ok := errors.AsType[*backend.RefusedError](err); ok {
			refused.Ports = want.needing(patch)
		}
		result.Rules, result.Err = a.rules, err
		return result
	}
	result.Rules, result.Tables = a.rules, f.state.wrote(want, patch)
	f.drift.wrote(ctx, patch, unknown, have.digests)
	return result
}
