package iptables

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/keeper"
)

// Holds is part of [keeper.Rules].
func (f *family) Holds(o nf.Object) bool {
	name := chainName{o.Table.Name, o.Name}
	return o.Table.Family == f.door.Family().Number() && slices.Contains(tables(), name.table) &&
		(o.Kind == nf.OtherObject || name.ours() || name == localnetChain() || slices.Contains(ipt.Builtin(), name.name))
}

// readTime is how long a check may compare rules, and so delay changes, and readAmid how long a Sync may.
const (
	readTime = 100 * time.Millisecond
	readAmid = 10 * time.Millisecond
)

// Reread is part of [keeper.Rules].
func (f *family) Reread(ctx context.Context, touched keeper.Touched, later keeper.Later) (left keeper.Touched, drift *backend.Drift, err error) {
	if f.held == nil {
		return left, nil, nil // the next Sync reads everything
	}
	all, within := touched.All && later != nil, readTime
	if later == nil {
		within = readAmid
	}
	part, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	left = keeper.Touched{All: touched.All && !all, Objects: map[nf.Object]struct{}{}}
	s, chains := newSeen(f.door, f.held), f.held.touched(touched, all)
	for _, table := range tables() {
		var names []string
		for name := range chains {
			if name.table == table {
				names = append(names, name.name)
			}
		}
		if names == nil {
			continue
		}
		some := names
		if all {
			some = nil
		}
		late, err := s.look(ctx, part, table, some, func(_ chainName, right bool) bool { return !right })
		if errors.Is(err, ipt.ErrBusy) { // another program is writing
			return touched, nil, nil
		}
		if err != nil {
			return touched, nil, err
		}
		for _, chain := range names {
			if _, done := s.right[chainName{table, chain}]; late && !done {
				delete(chains, chainName{table, chain})
				left.Objects[nf.Object{Table: nf.TableName{Family: f.door.Family().Number(), Name: table}, Kind: nf.ChainObject, Name: chain}] = struct{}{}
			}
		}
	}
	if details := f.correct(s, chains); details != nil {
		drift = &backend.Drift{Family: f.is, Rival: s.rival(), Writer: touched.Writer, What: details[len(details)-1], Details: details[:min(len(details), backend.MaxDetails)]}
	}
	return left, drift, nil
}

// touched returns the chains to read again: all that should be there, and those that others wrote; of a table that may have been made
// dormant, those with hooks.
func (r *ruleset) touched(by keeper.Touched, all bool) map[chainName]bool {
	chains := map[chainName]bool{}
	dormant := map[string]bool{}
	for o := range by.Objects {
		if o.Kind == nf.OtherObject {
			dormant[o.Table.Name] = true
			continue
		}
		chains[chainName{o.Table.Name, o.Name}] = true
	}
	for _, h := range r.hooks {
		if all || dormant[h.in.table] {
			chains[h.in] = true
		}
	}
	if !all {
		return chains
	}
	chains[localnetChain()] = true
	for name := range r.chains.All() {
		chains[name] = true
	}
	return chains
}

// rival reports whether there is a chain for an endpoint with a name that we do not use.
func (s *seen) rival() bool {
	for name := range s.right {
		if _, ours := s.want.chains.Get(name); !ours && name.table == tableNAT && strings.HasPrefix(name.name, prefixEndpoint) {
			return true
		}
	}
	return false
}

// correct makes held what some chains were seen to be, so that the next Sync writes what differs. It returns that in words.
func (f *family) correct(s *seen, read map[chainName]bool) (details []string) {
	held := *f.held
	chains := held.chains.Edit()
	for _, name := range slices.SortedFunc(maps.Keys(read), chainName.Compare) {
		if _, ours := held.chains.Get(name); ours && !s.right[name] {
			chains.Set(name, &chain{altered: true})
			details = append(details, "the chain "+name.name+" of table "+name.table)
		}
	}
	held.chains, held.hooks = chains.Map(), nil
	lacks := func(in chainName, rule ipt.Rule) bool {
		return read[in] && !s.right[in] && !slices.ContainsFunc(s.listed[in], rule.Equal)
	}
	for _, h := range f.held.hooks {
		if lacks(h.in, h.rule) {
			details = append(details, "the jump to "+h.to+" in "+h.in.name+" of "+h.in.table)
			continue
		}
		held.hooks = append(held.hooks, h)
	}
	if held.localnet && slices.ContainsFunc(localnetRules(), func(rule ipt.Rule) bool { return lacks(localnetChain(), rule) }) {
		held.localnet = false // the next Sync appends the missing rule
		details = append(details, "the chain "+chainLocalnet)
	}
	f.held = &held
	return details
}
