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
		(name.ours() || name == localnetChain() || slices.Contains(ipt.Builtin(), name.name))
}

// reread is what was read again.
type reread struct {
	*family
	// chains are those that are read: all that should be there, or some.
	chains map[chainName]bool
	all    bool
	// right has the chains that exist, with whether they have the rules that they should have. listed are the rules of chains of
	// others that may lack some.
	right  map[chainName]bool
	listed map[chainName][]ipt.Rule
	// left has those for which there was no time.
	left keeper.Touched
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
	r := &reread{family: f, all: touched.All && later != nil, chains: map[chainName]bool{}, right: map[chainName]bool{}, listed: map[chainName][]ipt.Rule{}}
	r.left = keeper.Touched{All: touched.All && !r.all, Objects: map[nf.Object]struct{}{}}
	for o := range touched.Objects {
		r.chains[chainName{o.Table.Name, o.Name}] = true
	}
	if r.all {
		r.chains[localnetChain()] = true
		for name := range f.held.chains.All() {
			r.chains[name] = true
		}
		for _, h := range f.held.hooks {
			r.chains[h.in] = true
		}
	}
	within := readTime
	if later == nil {
		within = readAmid
	}
	part, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for _, table := range tables() {
		err := r.read(ctx, part, table)
		if errors.Is(err, ipt.ErrBusy) { // another program is writing
			return touched, nil, nil
		}
		if err != nil {
			return touched, nil, err
		}
	}
	rival := false
	for name := range r.right { // one for an endpoint, with a name that we do not use
		_, ours := f.held.chains.Get(name)
		rival = rival || !ours && name.table == tableNAT && strings.HasPrefix(name.name, prefixEndpoint)
	}
	r.correct(func(what string) {
		if drift == nil {
			drift = &backend.Drift{Family: f.is, Rival: rival, Writer: touched.Writer}
		}
		drift.What = what
		if len(drift.Details) < backend.MaxDetails {
			drift.Details = append(drift.Details, what)
		}
	})
	return r.left, drift, nil
}

// read reads what is to be read of a table. It compares rules until part ends.
func (r *reread) read(ctx, part context.Context, table string) error {
	var chains []string
	for name := range r.chains {
		if name.table == table {
			chains = append(chains, name.name)
		}
	}
	if chains == nil {
		return nil
	}
	some := chains
	if r.all {
		some = nil
	}
	compared, err := r.door.Compare(part, table, r.held.expected(table), some...)
	if err != nil && part.Err() != nil && ctx.Err() == nil {
		err = nil
		for _, chain := range chains {
			if _, done := compared[chain]; !done {
				delete(r.chains, chainName{table, chain})
				r.left.Objects[nf.Object{Table: nf.TableName{Family: r.door.Family().Number(), Name: table}, Kind: nf.ChainObject, Name: chain}] = struct{}{}
			}
		}
	}
	if errors.Is(err, errors.ErrUnsupported) {
		return r.readText(ctx, table, some)
	}
	if err != nil {
		return err
	}
	unclear := []string{} // chains that only their text shows
	for chainIn, found := range compared {
		name := chainName{table, chainIn}
		is, ours := r.held.chains.Get(name)
		r.right[name] = found.Equal && !(ours && is.altered)
		if found.Rules > 0 && !r.right[name] {
			unclear = append(unclear, chainIn)
		}
	}
	return r.readText(ctx, table, unclear)
}

// readText reads the text of chains of a table, or of all if names is nil.
func (r *reread) readText(ctx context.Context, table string, names []string) error {
	listed, err := list(ctx, r.door, table, names)
	if err != nil {
		return err
	}
	for chainIn, rules := range listed {
		name := chainName{table, chainIn}
		is, ours := r.held.chains.Get(name)
		if ours && is.equal(&chain{body: kept(rules)}) {
			r.right[name] = true
		}
		if !name.ours() {
			r.listed[name] = rules
		}
	}
	return nil
}

// correct makes held what was read, so that the next Sync writes what differs. It calls note for that.
func (r *reread) correct(note func(what string)) {
	held := *r.held
	chains := held.chains.Edit()
	for _, name := range slices.SortedFunc(maps.Keys(r.chains), chainName.Compare) {
		if _, ours := held.chains.Get(name); ours && !r.right[name] {
			chains.Set(name, &chain{altered: true})
			note("the chain " + name.name + " of table " + name.table)
		}
	}
	held.chains, held.hooks = chains.Map(), nil
	lacks := func(in chainName, rule ipt.Rule) bool {
		return r.chains[in] && !r.right[in] && !slices.ContainsFunc(r.listed[in], rule.Equal)
	}
	for _, h := range r.held.hooks {
		if lacks(h.in, h.rule) {
			note("the jump to " + h.to + " in " + h.in.name + " of " + h.in.table)
			continue
		}
		held.hooks = append(held.hooks, h)
	}
	if held.localnet && slices.ContainsFunc(localnetRules(), func(rule ipt.Rule) bool { return lacks(localnetChain(), rule) }) {
		held.localnet = false // the next Sync appends the missing rule
		note("the chain " + chainLocalnet)
	}
	r.held = &held
}
