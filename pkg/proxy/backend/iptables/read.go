package iptables

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
)

// maxListed bounds the number of chains of a table whose rules are listed one by one, in 2 ms each.
const maxListed = 64

// read returns what the kernel holds, compared with a ruleset: chains that are equal are those of the ruleset, and the
// rules of others are not known, except in the filter table if the patch needs them, and if texts is set.
func read(ctx context.Context, door ipt.Tables, want *ruleset, texts bool) (*ruleset, error) {
	s := newSeen(door, want)
	for _, table := range tables() {
		_, err := s.look(ctx, ctx, table, nil, func(name chainName, right bool) bool {
			_, wanted := want.chains.Get(name)
			return slices.Contains(ipt.Builtin(), name.name) || name.ours() && !right && (wanted && table == tableFilter || texts)
		})
		if err != nil {
			return nil, err
		}
	}
	return s.ruleset(texts), nil
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

// seen is what was read of chains, compared with a ruleset.
type seen struct {
	door ipt.Tables
	want *ruleset
	// right has the chains that exist, with whether they have the rules that they should have. listed are the rules of those
	// whose text was read, or that have none.
	right  map[chainName]bool
	listed map[chainName][]ipt.Rule
}

func newSeen(door ipt.Tables, want *ruleset) *seen {
	return &seen{door: door, want: want, right: map[chainName]bool{}, listed: map[chainName][]ipt.Rule{}}
}

// look reads chains of a table, or all if none are given, and the text of those that are shown. It runs no iptables-save, which takes half
// a minute for 45,000 chains in the nft variant. It reads the text of all rules in the legacy variant, and with old programs. If part ends
// before ctx, it is late: some chains are missing.
func (s *seen) look(ctx, part context.Context, table string, names []string, shown func(name chainName, right bool) bool) (late bool, _ error) {
	compared, err := s.door.Compare(part, table, s.want.expected(table), names...)
	if errors.Is(err, errors.ErrUnsupported) {
		return false, s.list(ctx, table, names)
	}
	late = err != nil && part.Err() != nil && ctx.Err() == nil
	if err != nil && !late {
		return false, err
	}
	texts := []string{}
	for chainIn, found := range compared {
		name := chainName{table, chainIn}
		is, wanted := s.want.chains.Get(name)
		s.right[name] = found.Equal && (wanted && !is.altered || !wanted && !name.ours())
		if found.Rules == 0 {
			s.listed[name] = nil
		} else if shown(name, s.right[name]) {
			texts = append(texts, chainIn)
		}
	}
	err = s.list(ctx, table, texts)
	for chainIn, found := range compared {
		name := chainName{table, chainIn}
		if is, wanted := s.want.chains.Get(name); wanted && found.Rules != is.len() {
			s.right[name] = false // the program lists nothing for some rules of nft
		}
	}
	return late, err
}

// list reads the text of chains of a table, as a program prints it, except of those that it cannot list, for example because there is no
// such chain or nft wrote one. It reads all chains if there are many, and if names is nil.
func (s *seen) list(ctx context.Context, table string, names []string) error {
	if names == nil || len(names) > maxListed {
		text, err := s.door.Save(ctx, table)
		for chainIn, rules := range parse(text) {
			s.add(chainName{table, chainIn}, rules)
		}
		return err
	}
	for _, name := range names {
		texts, err := s.door.Rules(ctx, table, name)
		if ctx.Err() != nil || errors.Is(err, ipt.ErrLocked) {
			return errors.Join(err, ctx.Err())
		}
		if err != nil {
			continue
		}
		var rules []ipt.Rule
		for _, text := range texts {
			rules = append(rules, ipt.Listed(text))
		}
		s.add(chainName{table, name}, rules)
	}
	return nil
}

// add adds a chain that was listed.
func (s *seen) add(name chainName, rules []ipt.Rule) {
	is, wanted := s.want.chains.Get(name)
	s.right[name] = s.right[name] || wanted && is.equal(&chain{body: kept(rules)})
	s.listed[name] = rules
}

// ruleset returns those chains that are ours, and the rules in built-in chains that lead to them. iptables-nft 1.8.7 lists rules of newer
// versions without their ports and marks: what it lists would accept or reject too much, and only texts show it.
func (s *seen) ruleset(texts bool) *ruleset {
	out := &ruleset{}
	chains := out.chains.Edit()
	for name, right := range s.right {
		is, _ := s.want.chains.Get(name)
		rules, listed := s.listed[name]
		switch {
		case !name.ours():
		case right:
			chains.Set(name, is)
		case listed && (texts || s.door.Features().AddressBits):
			chains.Set(name, &chain{body: kept(rules)})
		default:
			chains.Set(name, &chain{altered: true})
		}
	}
	out.chains = chains.Map()
	for _, table := range tables() {
		for _, name := range ipt.Builtin() {
			for _, rule := range s.listed[chainName{table, name}] {
				if h, ok := asHook(chainName{table, name}, rule); ok {
					out.hooks = append(out.hooks, h)
				}
			}
		}
	}
	return out
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
