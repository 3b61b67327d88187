package iptables

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/keeper"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// family is one address family's tables. It implements keeper.Rules.
type family struct {
	is       cluster.Family
	door     ipt.Tables
	renderer renderer
	settings Settings
	// undeleted is the applier's.
	undeleted map[chainName]bool
	// held is what the tables hold; nil if it has to be read.
	held *ruleset
	// written is what the last successful Sync wrote. It may be read by any goroutine.
	written atomic.Pointer[rendering]
	// rules counts the rules of written by table.
	rules map[string]int
}

func newFamily(door ipt.Tables, opts Options, settings Settings) *family {
	is := cluster.IPv4
	if door.Family() == ipt.IPv6 {
		is = cluster.IPv6
	}
	return &family{is: is, door: door, renderer: renderer{family: is, opts: opts, can: probe(door.Features(), opts, settings)},
		settings: settings, undeleted: map[chainName]bool{}}
}

// Family is part of [keeper.Rules].
func (f *family) Family() cluster.Family { return f.is }

// Forget is part of [keeper.Rules].
func (f *family) Forget() {
	f.held = nil
	f.written.Store(nil)
}

// pass is the work of one Sync in a family. It implements keeper.Pass.
type pass struct {
	*family
	read    bool
	took    time.Duration
	want    *rendering
	patch   *patch
	applier *applier
	err     error
}

// Begin is part of [keeper.Rules]. What the tables hold is unknown until the end of a pass without an error.
func (f *family) Begin(ctx context.Context, p *plan.Plan, _ keeper.Touched) keeper.Pass {
	start := time.Now()
	s := &pass{family: f, read: f.held == nil, want: f.renderer.render(p, f.written.Load()), patch: &patch{},
		applier: &applier{ctx: ctx, door: f.door, settings: f.settings, undeleted: f.undeleted, chunk: f.renderer.can.chunk}}
	held := f.held
	f.held = nil
	if held == nil {
		held, s.err = read(ctx, f.door, &s.want.ruleset, false)
	}
	if s.err == nil {
		s.patch = diff(held, &s.want.ruleset)
	}
	s.took = time.Since(start)
	return s
}

// Size is part of [keeper.Pass].
func (s *pass) Size() int {
	n := len(s.patch.hooks) + len(s.patch.retired())
	if s.patch.localnet {
		n++
	}
	for _, table := range tables() {
		n += len(s.patch.writes[table]) + s.patch.written(table) + len(s.patch.deletes[table])
	}
	return n
}

// Put is part of [keeper.Pass]. It removes what is unused, too: fewer transactions are better.
func (s *pass) Put() {
	start := time.Now()
	if s.err == nil {
		s.err = s.applier.apply(s.patch)
		if refused, ok := errors.AsType[*backend.RefusedError](s.err); ok {
			refused.Ports = s.want.needing(s.patch)
		}
	}
	s.took += time.Since(start)
}

// Finish is part of [keeper.Pass].
func (s *pass) Finish() {}

// Transactions is part of [keeper.Pass]. Programs make some of them, in numbers of their own.
func (s *pass) Transactions() (n int, certain bool) { return s.Size(), s.Size() == 0 }

// End is part of [keeper.Pass].
func (s *pass) End(bool) backend.Result {
	result := backend.Result{Family: s.is, Read: s.read, Duration: s.took, Rules: s.applier.rules, Err: s.err}
	if s.err != nil {
		return result
	}
	before := s.written.Load()
	if before == nil {
		before, s.rules = &rendering{}, map[string]int{}
	}
	for name, change := range cluster.Changes(before.chains, s.want.chains) {
		s.rules[name.table] += change.After.len() - change.Before.len()
	}
	for _, table := range []string{tableFilter, tableNAT} {
		result.Tables = append(result.Tables, backend.Table{Name: table, Rules: s.rules[table], Written: s.patch.written(table)})
	}
	s.held = &s.want.ruleset
	s.written.Store(s.want)
	return result
}
