package iptables

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// maxListed bounds the number of chains of a table whose rules are listed one by one, in 2 ms each.
const maxListed = 64

// read returns what the kernel holds, compared with a ruleset: chains that are equal are those of the ruleset, and the
// rules of others are not known, except in the filter table if the patch needs them, and if texts is set. Without an iptables-save,
// which takes half a minute for 45,000 chains in the nft variant. It reads the text of all rules in the legacy variant, and with old
// programs.
func read(ctx context.Context, door ipt.Tables, want *ruleset, texts bool) (*ruleset, error) {
	out := &ruleset{}
	r := &reader{ruleset: out, door: door, want: want, texts: texts, chains: out.chains.Edit()}
	for _, table := range tables() {
		if err := r.readTable(ctx, table); err != nil {
			return nil, err
		}
	}
	out.chains = r.chains.Map()
	return out, nil
}

// expected returns the rules of the chains in a table, and those that chains of others should have.
func (r *ruleset) expected(table string) ipt.Expected {
	var rules []ipt.Rule
	return func(chainIn string) ([]ipt.Rule, bool) {
		name := chainName{table, chainIn}
		rules = rules[:0]
		if c, ours := r.chains.Get(name); ours {
			rules = c.appendTo(rules)
			return rules, false
		}
		if r.localnet && name == localnetChain() {
			rules = append(rules, localnetRules()...)
		}
		for _, h := range r.hooks {
			if h.in == name {
				rules = append(rules, h.rule)
			}
		}
		return rules, true
	}
}

// reader reads a ruleset.
type reader struct {
	*ruleset
	door   ipt.Tables
	want   *ruleset
	texts  bool
	chains *cluster.Editor[chainName, *chain]
}

// readTable adds the chains and hooks of one table.
func (r *reader) readTable(ctx context.Context, table string) error {
	var some []string // nil is all
	var only *ruleset // as in add
	compared, err := r.door.Compare(ctx, table, r.want.expected(table))
	switch {
	case err == nil:
		some = []string{}
	case !errors.Is(err, errors.ErrUnsupported):
		return err
	case !r.door.Features().AddressBits && !r.texts:
		only = r.want
	}
	for chainIn, found := range compared {
		name := chainName{table, chainIn}
		is, wanted := r.want.chains.Get(name)
		switch {
		case slices.Contains(ipt.Builtin(), chainIn) && found.Rules > 0:
			some = append(some, chainIn)
		case !name.ours():
		case wanted && found.Equal:
			r.chains.Set(name, is)
		default:
			r.chains.Set(name, &chain{altered: true})
			if wanted && table == tableFilter || r.texts {
				some = append(some, chainIn)
			}
		}
	}
	listed, err := list(ctx, r.door, table, some)
	r.add(table, listed, only)
	return err
}

// list returns the rules of chains of a table, as a program prints them, except of those that it cannot list, for example because
// there is no such chain or nft wrote one. It returns all chains if there are many, and if names is nil.
func list(ctx context.Context, door ipt.Tables, table string, names []string) (map[string][]ipt.Rule, error) {
	if names == nil || len(names) > maxListed {
		text, err := door.Save(ctx, table)
		return parse(text), err
	}
	listed := map[string][]ipt.Rule{}
	for _, name := range names {
		texts, err := door.Rules(ctx, table, name)
		if ctx.Err() != nil || errors.Is(err, ipt.ErrLocked) {
			return nil, errors.Join(err, ctx.Err())
		}
		if err != nil {
			continue
		}
		listed[name] = nil
		for _, text := range texts {
			listed[name] = append(listed[name], ipt.Listed(text))
		}
	}
	return listed, nil
}

// add adds those of the listed chains of a table that are ours, and the rules in built-in chains that lead to them. If only is not nil,
// the rules are known only of chains that have its rules: iptables-nft 1.8.7 lists rules of newer versions without their ports and
// marks, and what it lists would accept or reject too much.
func (r *reader) add(table string, listed map[string][]ipt.Rule, only *ruleset) {
	for chainIn, rules := range listed {
		name, c := chainName{table, chainIn}, &chain{body: kept(rules)}
		if only != nil {
			if is, ok := only.chains.Get(name); !ok || !is.equal(c) {
				c = &chain{altered: true}
			}
		}
		if name.ours() {
			r.chains.Set(name, c)
		}
	}
	for _, name := range ipt.Builtin() {
		for _, rule := range listed[name] {
			if h, ok := asHook(chainName{table, name}, rule); ok {
				r.hooks = append(r.hooks, h)
			}
		}
	}
}

// parse returns the chains in the output of iptables-save.
func parse(text string) map[string][]ipt.Rule {
	chains := map[string][]ipt.Rule{}
	for row := range strings.Lines(text) {
		row = strings.TrimSpace(row)
		if declared, ok := strings.CutPrefix(row, ":"); ok {
			name, _, _ := strings.Cut(declared, " ")
			chains[name] = nil
		}
		if strings.HasPrefix(row, "[") { // the rule's counters
			_, row, _ = strings.Cut(row, "] ")
		}
		if rest, ok := strings.CutPrefix(row, "-A "); ok {
			name, rule, _ := strings.Cut(rest, " ")
			chains[name] = append(chains[name], ipt.Listed(rule))
		}
	}
	return chains
}

// asHook returns a rule that was listed in a built-in chain as a hook, if it ends with a jump to a chain of ours.
func asHook(in chainName, rule ipt.Rule) (hook, bool) {
	words, err := ipt.Words(rule.Text())
	if err != nil || len(words) < 2 || words[len(words)-2] != "-j" {
		return hook{}, false
	}
	to := chainName{in.table, words[len(words)-1]}
	return hook{in, to.name, rule}, to.ours() || to == localnetChain()
}
