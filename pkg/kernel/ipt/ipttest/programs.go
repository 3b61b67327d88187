package ipttest

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
)

// programs stand for those of iptables.
type programs struct{ fake *Fake }

// Restore is part of [ipt.Programs].
func (p programs) Restore(_ context.Context, input string) error {
	return p.fake.restore(fakeProxy, input)
}

// Save is part of [ipt.Programs].
func (p programs) Save(_ context.Context, table string) (string, error) {
	return p.fake.save(table, true), nil
}

// Rules is part of [ipt.Programs].
func (p programs) Rules(_ context.Context, table, chain string) (rules []string, _ error) {
	if _, exists := p.fake.begin(table).user[chain]; !exists {
		return nil, fmt.Errorf("iptables %s: no chain %s in table %s", p.fake.family, chain, table)
	}
	for _, rule := range p.fake.rules(table, chain) {
		rules = append(rules, rule.text)
	}
	return rules, nil
}

// Append is part of [ipt.Programs].
func (p programs) Append(_ context.Context, table, chain string, rule ipt.Rule) error {
	return p.single(table, chain, rule, func(exists, held bool) string {
		switch {
		case held:
			return ""
		case !exists:
			return fmt.Sprintf(":%s - [0:0]\n-A %s %s\n", chain, chain, rule.Text())
		}
		return fmt.Sprintf("-A %s %s\n", chain, rule.Text())
	})
}

// Delete is part of [ipt.Programs].
func (p programs) Delete(_ context.Context, table, chain string, rule ipt.Rule) error {
	return p.single(table, chain, rule, func(_, held bool) string {
		if !held {
			return ""
		}
		return fmt.Sprintf("-D %s %s\n", chain, rule.Text())
	})
}

// single changes a rule by some lines, which depend on whether the chain exists and has the rule.
func (p programs) single(table, chain string, rule ipt.Rule, lines func(exists, held bool) string) error {
	s := p.fake.begin(table)
	words, err := ipt.Words(rule.Text())
	if err != nil {
		return err
	}
	parsed, err := s.parse(words)
	if err != nil {
		return fmt.Errorf("iptables %s: table %s, chain %s: %w", p.fake.family, table, chain, err)
	}
	_, exists := s.user[chain]
	held := exists && slices.ContainsFunc(p.fake.rules(table, chain), func(h heldRule) bool { return h.text == parsed.text })
	if input := lines(exists, held); input != "" {
		return p.fake.restore(fakeProxy, "*"+table+"\n"+input+"COMMIT\n")
	}
	return nil
}

// Packets is part of [ipt.Programs].
func (p programs) Packets(_ context.Context, table string, chains ...string) (map[string][]uint64, error) {
	packets := map[string][]uint64{}
	for _, chain := range chains {
		for _, rule := range p.fake.rules(table, chain) {
			packets[chain] = append(packets[chain], rule.packets)
		}
	}
	return packets, nil
}
