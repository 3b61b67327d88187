package iptables

import (
	"context"
	"sync/atomic"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// state is what is known about one family's tables.
type state struct {
	family cluster.Family
	door   ipt.Tables
	// held is what the tables hold; nil if it has to be read.
	held *ruleset
	// written is what the last successful Sync wrote. It may be read by any goroutine.
	written atomic.Pointer[rendering]
	// rules counts the rules of written by table.
	rules map[string]int
}

// take returns what the tables hold, comparing them with what they should hold if it is not known, and makes it unknown
// until wrote is called.
func (s *state) take(ctx context.Context, want *ruleset) (have *knowledge, err error) {
	held := s.held
	s.held = nil
	if held == nil {
		return readAgainst(ctx, s.door, want)
	}
	return &knowledge{ruleset: held}, nil
}

// wrote records that the tables now hold what was rendered. It returns the numbers of rules in the tables for metrics.
func (s *state) wrote(now *rendering, p *patch) (counts []backend.Table) {
	before := s.written.Load()
	if before == nil {
		before, s.rules = &rendering{}, map[string]int{}
	}
	for name, change := range cluster.Changes(before.chains, now.chains) {
		s.rules[name.table] += change.After.len() - change.Before.len()
	}
	for _, table := range []string{tableFilter, tableNAT} {
		counts = append(counts, backend.Table{Name: table, Rules: s.rules[table], Written: p.written(table)})
	}
	s.held = &now.ruleset
	s.written.Store(now)
	return counts
}

// forget makes everything unknown.
func (s *state) forget() {
	s.held = nil
	s.written.Store(nil)
}
