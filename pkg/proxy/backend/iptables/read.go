package iptables

import (
	"context"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// read returns what the kernel holds.
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
	ours := map[string]*chain{}
	for row := range strings.Lines(text) {
		row = strings.TrimSpace(row)
		if declared, ok := strings.CutPrefix(row, ":"); ok {
			name, _, _ := strings.Cut(declared, " ")
			if (chainName{table, name}).ours() {
				ours[name] = &chain{read: true}
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
		if c, mine := ours[name]; mine {
			c.lines = append(c.lines, line{text: rule})
			continue
		}
		if h, ok := parseHook(chainName{table, name}, rule); ok {
			r.hooks = append(r.hooks, h)
		}
	}
	for name, c := range ours {
		chains.Set(chainName{table, name}, c)
	}
}

// parseHook reads a rule in a chain of others. Only rules in built-in chains that end with a jump to a chain of ours
// are hooks.
func parseHook(in chainName, text string) (hook, bool) {
	words, err := ipt.Words(text)
	builtin := []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}
	if err != nil || len(words) < 2 || words[len(words)-2] != "-j" || !slices.Contains(builtin, in.name) {
		return hook{}, false
	}
	to := chainName{in.table, words[len(words)-1]}
	return hook{in, to.name, text}, to.ours() || to == chainName{tableFilter, chainLocalnet}
}
