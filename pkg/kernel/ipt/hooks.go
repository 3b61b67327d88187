package ipt

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/coreos/go-iptables/iptables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// Insert is part of [Tables].
func (t *kernelTables) Insert(ctx context.Context, table string, rules ...ChainRule) error {
	missing, has := &Transaction{Table: table}, map[string]func(Rule) bool{}
	for _, r := range rules {
		if has[r.Chain] == nil {
			var err error
			if has[r.Chain], err = t.among(ctx, table, r.Chain); err != nil {
				return fmt.Errorf("iptables %s: look for rules in chain %s of table %s: %w", t.family, r.Chain, table, err)
			}
		}
		if !has[r.Chain](r.Rule) {
			missing.Inserted = append(missing.Inserted, r)
		}
	}
	if len(missing.Inserted) == 0 {
		return nil
	}
	if err := t.Write(ctx, missing); err != nil {
		return fmt.Errorf("insert rules into table %s: %w", table, err)
	}
	return nil
}

// among returns whether a chain has a rule; a missing chain has none. It compares the bytes of rules, or else their text, which a program
// lists.
func (t *kernelTables) among(ctx context.Context, table, chain string) (has func(Rule) bool, err error) {
	if t.direct != nil {
		c := &comparer{encoder: encoder{family: t.family}}
		if err := t.idle(ctx); err != nil {
			return nil, err
		}
		if err := t.hook(ctx, table, chain); err != nil {
			return nil, err
		}
		return c.has, netlink.Retry(ctx, func() error {
			c.held, c.ends = c.held[:0], c.ends[:0]
			return t.rules(table, chain, c.read)
		})
	}
	listed, err := t.Rules(ctx, table, chain)
	if failed, ok := errors.AsType[*iptables.Error](err); ok && failed.ExitStatus() == 1 { // as ChainExists takes it
		err = nil
	}
	return func(rule Rule) bool {
		return slices.ContainsFunc(listed, func(there string) bool { return Listed(there).Equal(rule) })
	}, err
}
