package iptables

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// maxListed bounds the number of chains of a table whose rules are listed one by one, in 2 ms each. In the legacy variant one takes
// half as long as the whole table.
const (
	maxListed       = 64
	maxListedLegacy = 1
)

// knowledge is what was read of the tables.
type knowledge struct {
	*ruleset
	// digests holds the digests of all chains in our tables, if the door returned them; otherwise nil.
	digests map[chainName]uint64
}

// readAgainst returns what the kernel holds, compared with a ruleset: chains that are equal are those of the ruleset, and the
// lines of others are not known, except in the filter table if the patch needs them. Without an iptables-save, which
// takes half a minute for 45,000 chains in the nft variant; in the legacy variant, it reads the text.
func readAgainst(ctx context.Context, door ipt.Tables, want *ruleset) (*knowledge, error) {
	out := &knowledge{ruleset: &ruleset{}, digests: map[chainName]uint64{}}
	chains := out.chains.Edit()
	for _, table := range tables() {
		err := out.readTable(ctx, door, table, want, chains)
		if errors.Is(err, errors.ErrUnsupported) {
			text, err := read(ctx, door)
			if err == nil && !door.Features().AddressBits {
				text.forgetOthers(want)
			}
			return &knowledge{ruleset: text}, err
		}
		if err != nil {
			return nil, err
		}
	}
	out.chains = chains.Map()
	return out, nil
}

// forgetOthers makes the lines unknown of chains that are not those of another ruleset: iptables-nft 1.8.7 lists rules of newer
// versions without their ports and marks, and what it lists would accept or reject too much.
func (r *ruleset) forgetOthers(other *ruleset) {
	chains := r.chains.Edit()
	for name, c := range r.chains.All() {
		if is, ok := other.chains.Get(name); !ok || !is.equal(c) {
			chains.Set(name, &chain{altered: true})
		}
	}
	r.chains = chains.Map()
}

// expected returns a function that returns the rules of a chain in a table, valid until the next call.
func (r *ruleset) expected(table string) func(chain string) []ipt.Rule {
	var rules []ipt.Rule
	return func(name string) []ipt.Rule {
		rules = rules[:0]
		if c, ok := r.chains.Get(chainName{table, name}); ok {
			for _, l := range c.lines() {
				rules = append(rules, l.Rule)
			}
		}
		return rules
	}
}

// readTable adds the chains and hooks of one table.
func (k *knowledge) readTable(ctx context.Context, door ipt.Tables, table string, want *ruleset, chains *cluster.Editor[chainName, *chain]) error {
	compared, err := door.Compare(ctx, table, want.expected(table))
	if err != nil {
		return err
	}
	var differing []chainName
	for chainIn, found := range compared {
		name := chainName{table, chainIn}
		k.digests[name] = found.Digest
		is, wanted := want.chains.Get(name)
		switch {
		case !name.ours():
		case wanted && found.Equal:
			chains.Set(name, is)
		default:
			chains.Set(name, &chain{altered: true})
			if wanted {
				differing = append(differing, name)
			}
		}
		if found.Digest == 0 || !slices.Contains(ipt.Builtin(), chainIn) {
			continue
		}
		rules, err := door.Rules(ctx, table, chainIn)
		if err != nil {
			return err
		}
		for _, rule := range rules {
			if h, ok := parseHook(name, rule); ok {
				k.hooks = append(k.hooks, h)
			}
		}
	}
	if table != tableFilter {
		return nil
	}
	return list(ctx, door, tableFilter, differing, chains)
}

// list adds the lines of chains of a table, except of those that the program cannot list, for example because nft wrote one.
func list(ctx context.Context, door ipt.Tables, table string, names []chainName, chains *cluster.Editor[chainName, *chain]) error {
	most := maxListed
	if door.Features().Variant == ipt.Legacy {
		most = maxListedLegacy
	}
	if len(names) > most {
		text, err := door.Save(ctx, table)
		if err == nil {
			(&ruleset{}).parse(table, text, chains)
		}
		return err
	}
	for _, name := range names {
		rules, err := door.Rules(ctx, table, name.name)
		switch {
		case ctx.Err() != nil || errors.Is(err, ipt.ErrLocked):
			return err
		case err != nil:
			continue
		}
		var listed []line
		for _, rule := range rules {
			listed = append(listed, line{Rule: ipt.Listed(rule)})
		}
		chains.Set(name, &chain{read: true, body: kept(listed)})
	}
	return nil
}

// read returns what the kernel holds, with the text of all rules.
func read(ctx context.Context, door ipt.Tables) (*ruleset, error) {
	out := &ruleset{}
	chains := out.chains.Edit()
	for _, table := range tables() {
		text, err := door.Save(ctx, table)
		if err != nil {
			return nil, err
		}
		out.parse(table, text, chains)
	}
	out.chains = chains.Map()
	return out, nil
}

// parse reads our chains of a table from the output of iptables-save, and the rules in built-in chains that lead to them.
func (r *ruleset) parse(table, text string, chains *cluster.Editor[chainName, *chain]) {
	ours := map[string][]line{}
	for row := range strings.Lines(text) {
		row = strings.TrimSpace(row)
		if declared, ok := strings.CutPrefix(row, ":"); ok {
			name, _, _ := strings.Cut(declared, " ")
			if (chainName{table, name}).ours() {
				ours[name] = []line{}
			}
			continue
		}
		if strings.HasPrefix(row, "[") { // the rule's counters
			_, row, _ = strings.Cut(row, "] ")
		}
		rest, ok := strings.CutPrefix(row, "-A ")
		if !ok {
			continue
		}
		name, rule, _ := strings.Cut(rest, " ")
		if _, mine := ours[name]; mine {
			ours[name] = append(ours[name], line{Rule: ipt.Listed(rule)})
			continue
		}
		if h, ok := parseHook(chainName{table, name}, rule); ok {
			r.hooks = append(r.hooks, h)
		}
	}
	for name, listed := range ours {
		chains.Set(chainName{table, name}, &chain{read: true, body: kept(listed)})
	}
}

// parseHook reads a rule in a chain of others. Only rules in built-in chains that end with a jump to a chain of ours
// are hooks.
func parseHook(in chainName, text string) (hook, bool) {
	words, err := ipt.Words(text)
	if err != nil || len(words) < 2 || words[len(words)-2] != "-j" || !slices.Contains(ipt.Builtin(), in.name) {
		return hook{}, false
	}
	to := chainName{in.table, words[len(words)-1]}
	return hook{in, to.name, ipt.Listed(text)}, to.ours() || to == chainName{tableFilter, chainLocalnet}
}
