package iptables

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// tables are those that we have chains in. Each is read and written by itself.
func tables() []string { return []string{tableFilter, tableNAT, tableMangle} }

// read makes a ruleset of what the kernel holds.
func read(ctx context.Context, door ipt.Tables, family cluster.Family) (*ruleset, error) {
	out := &ruleset{family: family}
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

// parse takes our chains out of a table as iptables-save prints it, and the rules elsewhere that lead to them.
func (r *ruleset) parse(table, text string, chains *cluster.Editor[chainName, *chain]) {
	lines := map[string][]line{}
	for row := range strings.Lines(text) {
		row = strings.TrimSpace(row)
		if declared, ok := strings.CutPrefix(row, ":"); ok {
			name, _, _ := strings.Cut(declared, " ")
			if (chainName{table, name}).ours() {
				lines[name] = []line{}
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
		if of, mine := lines[name]; mine {
			lines[name] = append(of, line{text: rule})
			continue
		}
		if j, ok := jumpOf(table, name, rule); ok {
			r.jumps = append(r.jumps, j)
		}
	}
	for name, rules := range lines {
		chains.Set(chainName{table, name}, &chain{lines: rules, read: true})
	}
}

// jumpOf reads a rule in somebody else's chain. Only those in built-in chains are jumps of ours.
func jumpOf(table, from, rule string) (jump, bool) {
	words, err := ipt.Words(rule)
	builtin := []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}
	if err != nil || len(words) < 2 || !slices.Contains(builtin, from) {
		return jump{}, false
	}
	to := words[len(words)-1]
	j := jump{from: chainName{table, from}, match: words[:len(words)-2], to: to}
	return j, words[len(words)-2] == "-j" && ((chainName{table, to}).ours() || table == tableFilter && to == chainLocalnet)
}

// canonical is equal for rules that mean the same, in whatever order iptables prints their parts.
func canonical(rule string) string {
	words, err := ipt.Words(rule)
	if err != nil {
		return rule
	}
	return strings.Join(groups(words), "\x00")
}

// groups are a rule's parts, each an option with its values, sorted.
func groups(words []string) []string {
	var parts []string
	open := false
	for i, word := range words {
		last := ""
		if i > 0 {
			last = words[i-1]
		}
		option := word == "!" || strings.HasPrefix(word, "-") && last != "--comment"
		switch {
		case option && (!open || last != "!"):
			parts = append(parts, word)
		default:
			if len(parts) == 0 {
				parts = append(parts, "")
			}
			parts[len(parts)-1] += " " + value(words, i)
		}
		open = option
	}
	slices.Sort(parts)
	return parts
}

// value is a word in the form in which it is compared: versions of iptables print numbers to different lengths.
func value(words []string, at int) string {
	word := words[at]
	if at > 0 && words[at-1] == "--probability" {
		if f, err := strconv.ParseFloat(word, 64); err == nil {
			return strconv.FormatFloat(f, 'f', 7, 64)
		}
	}
	return word
}
