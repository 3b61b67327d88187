package ipt

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/coreos/go-iptables/iptables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// has returns for each of the rules whether a chain has it; a missing chain has none. It runs no program in the nft variant of
// iptables 1.8.9 and later, and otherwise one, which lists the chain.
func (t *kernelTables) has(ctx context.Context, table, chain string, rules []Rule) (has []bool, err error) {
	look := t.lists
	if t.encodes(rules) {
		look, err = t.reads, t.direct.idle(ctx)
	}
	if err == nil {
		has, err = look(ctx, table, chain, rules)
	}
	if err != nil {
		return nil, fmt.Errorf("iptables %s: look for rules in chain %s of table %s: %w", t.family, chain, table, err)
	}
	return has, nil
}

// encodes reports whether the bytes of all rules are known.
func (t *kernelTables) encodes(rules []Rule) bool {
	e := encoder{family: t.family}
	return t.direct != nil && !slices.ContainsFunc(rules, func(r Rule) bool { _, _, ok := e.rule(nil, r); return !ok })
}

// reads reads a chain, and compares the bytes of its rules.
func (t *kernelTables) reads(ctx context.Context, table, chain string, rules []Rule) ([]bool, error) {
	c := &comparer{encoder: encoder{family: t.family}}
	err := netlink.Retry(ctx, func() error {
		c.held, c.ends = c.held[:0], c.ends[:0]
		return t.reader.rules(table, chain, c.read)
	})
	has := make([]bool, len(rules))
	for i, rule := range rules {
		has[i] = c.has(rule)
	}
	return has, err
}

// lists runs a program that lists a chain, and compares the text of its rules.
func (t *kernelTables) lists(ctx context.Context, table, chain string, rules []Rule) ([]bool, error) {
	has := make([]bool, len(rules))
	listed, err := t.Rules(ctx, table, chain)
	if failed, ok := errors.AsType[*iptables.Error](err); ok && failed.ExitStatus() == 1 { // as ChainExists takes it
		return has, nil
	}
	if err != nil {
		return nil, err
	}
	for i, rule := range rules {
		has[i] = slices.ContainsFunc(listed, func(there string) bool { return Listed(there).Equal(rule) })
	}
	return has, nil
}

// Insert is part of [Tables].
func (t *kernelTables) Insert(ctx context.Context, table string, rules ...ChainRule) error {
	by := map[string][]Rule{}
	for _, r := range rules {
		by[r.Chain] = append(by[r.Chain], r.Rule)
	}
	has := map[string][]bool{}
	for chain, some := range by {
		var err error
		if has[chain], err = t.has(ctx, table, chain, some); err != nil {
			return err
		}
	}
	missing := &Transaction{Table: table}
	for _, r := range rules {
		if !has[r.Chain][0] {
			missing.Inserted = append(missing.Inserted, r)
		}
		has[r.Chain] = has[r.Chain][1:]
	}
	if len(missing.Inserted) == 0 {
		return nil
	}
	if err := t.Write(ctx, missing); err != nil {
		return fmt.Errorf("insert rules into table %s: %w", table, err)
	}
	return nil
}
