package ipttest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
)

// builtin are the built-in chains of each table (iptables(8)).
var builtin = map[string][]string{
	"filter": {"INPUT", "FORWARD", "OUTPUT"},
	"nat":    {"PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"},
	"mangle": {"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"},
}

// maxChain is XT_EXTENSION_MAXNAMELEN without the final NUL.
const maxChain = 28

// fakeTable is one table. Changes are made to a clone, which replaces it on success.
type fakeTable struct {
	chains map[string]*fakeChain
	order  []string // of the built-in chains
}

// fakeChain is a chain; its rules are replaced, and never changed in place except for counters.
type fakeChain struct {
	policy string // "-" of a user chain
	rules  []fakeRule
}

// fakeRule is a rule as iptables prints it.
type fakeRule struct {
	text           string
	target         string // of -j or -g
	packets, bytes uint64
}

func newFakeTable(order []string) *fakeTable {
	t := &fakeTable{chains: map[string]*fakeChain{}, order: order}
	for _, name := range order {
		t.chains[name] = &fakeChain{policy: "ACCEPT"}
	}
	return t
}

func (t *fakeTable) clone() *fakeTable {
	return &fakeTable{chains: maps.Clone(t.chains), order: t.order}
}

func (t *fakeTable) put(chain string, rules []fakeRule) {
	t.chains[chain] = &fakeChain{policy: t.chains[chain].policy, rules: rules}
}

// names returns the built-in chains, then the others, sorted.
func (t *fakeTable) names() []string {
	names := slices.Clone(t.order)
	for _, name := range slices.Sorted(maps.Keys(t.chains)) {
		if t.chains[name].policy == "-" {
			names = append(names, name)
		}
	}
	return names
}

func (t *fakeTable) untouched() bool {
	for _, chain := range t.chains {
		if chain.policy == "-" || len(chain.rules) > 0 {
			return false
		}
	}
	return true
}

func (c *fakeChain) holds(rule fakeRule) bool {
	return slices.ContainsFunc(c.rules, func(r fakeRule) bool { return r.text == rule.text })
}

// equal reports whether a chain has some rules, perhaps among others.
func (t *fakeTable) equal(c *fakeChain, rules []ipt.Rule, others bool, d dialect) bool {
	if others {
		return !slices.ContainsFunc(rules, func(rule ipt.Rule) bool {
			parsed, err := d.rule(rule, t)
			return err != nil || !c.holds(parsed)
		})
	}
	return slices.EqualFunc(c.rules, rules, func(held fakeRule, rule ipt.Rule) bool {
		parsed, err := d.rule(rule, t)
		return err == nil && parsed.text == held.text
	})
}

// line applies one line of an input.
func (t *fakeTable) line(line string, d dialect) error {
	words, err := ipt.Words(line)
	if err != nil {
		return err
	}
	if strings.HasPrefix(line, ":") {
		return t.declare(words)
	}
	counters := ""
	if strings.HasPrefix(words[0], "[") {
		counters, words = words[0], words[1:]
	}
	if len(words) < 2 {
		return fmt.Errorf("%q is not a command", line)
	}
	command, name, rest := words[0], words[1], words[2:]
	chain := t.chains[name]
	if chain == nil {
		return fmt.Errorf("No chain/target/match by that name: %s", name) //nolint:staticcheck // iptables' own words
	}
	switch command {
	case "-A", "-I":
		rule, err := d.parse(rest, t)
		if err != nil {
			return err
		}
		if rule.packets, rule.bytes, err = parseCounters(counters); err != nil {
			return err
		}
		if command == "-A" {
			t.put(name, append(slices.Clip(chain.rules), rule))
		} else {
			t.put(name, append([]fakeRule{rule}, chain.rules...))
		}
		return nil
	case "-D":
		rule, err := d.parse(rest, t)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(chain.rules, func(r fakeRule) bool { return r.text == rule.text })
		if at < 0 {
			return errors.New("Bad rule (does a matching rule exist in that chain?)") //nolint:staticcheck // iptables' own words
		}
		t.put(name, slices.Delete(slices.Clone(chain.rules), at, at+1))
		return nil
	case "-F":
		t.put(name, nil)
		return nil
	case "-X":
		return t.remove(name)
	}
	return fmt.Errorf("the fake does not support the command %s", command)
}

// declare creates or empties a user chain; for a built-in one it sets the policy and keeps the rules (--noflush).
func (t *fakeTable) declare(words []string) error {
	name := words[0][1:]
	if len(words) != 3 {
		return fmt.Errorf("%q is not :CHAIN POLICY [PACKETS:BYTES]", strings.Join(words, " "))
	}
	if _, _, err := parseCounters(words[2]); err != nil {
		return err
	}
	if chain := t.chains[name]; chain != nil && chain.policy != "-" {
		if words[1] != "ACCEPT" && words[1] != "DROP" {
			return fmt.Errorf("%s is not a policy for %s", words[1], name)
		}
		t.chains[name] = &fakeChain{policy: words[1], rules: chain.rules}
		return nil
	}
	if name == "" || len(name) > maxChain || strings.IndexAny(name, "!-") == 0 {
		return fmt.Errorf("Invalid chain name `%s' (%d chars max)", name, maxChain) //nolint:staticcheck // iptables' own words
	}
	if words[1] != "-" {
		return fmt.Errorf("a user chain has no policy: %s %s", name, words[1])
	}
	t.chains[name] = &fakeChain{policy: "-"}
	return nil
}

// remove deletes a user chain that is empty and not in use.
func (t *fakeTable) remove(name string) error {
	chain := t.chains[name]
	if chain.policy != "-" {
		return fmt.Errorf("%s is built in", name)
	}
	if len(chain.rules) > 0 {
		return fmt.Errorf("CHAIN_DEL failed (Directory not empty): chain %s", name)
	}
	for from, c := range t.chains {
		if slices.ContainsFunc(c.rules, func(r fakeRule) bool { return r.target == name }) {
			return fmt.Errorf("CHAIN_DEL failed (Device or resource busy): chain %s, used by %s", name, from)
		}
	}
	delete(t.chains, name)
	return nil
}

// loops returns an error if chains form a loop that a built-in chain leads to, or go too deep for nf_tables (16 chains).
func (t *fakeTable) loops() error {
	const deepest = 16
	var walk func(name string, depth int) error
	seen := map[string]int{}
	walk = func(name string, depth int) error {
		if depth > deepest {
			return fmt.Errorf("Too many levels of symbolic links: chains form a loop or go too deep, at %s", name) //nolint:staticcheck // the kernel's own words
		}
		if seen[name] >= depth {
			return nil
		}
		seen[name] = depth
		for _, rule := range t.chains[name].rules {
			if t.chains[rule.target] != nil {
				if err := walk(rule.target, depth+1); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for _, name := range t.order {
		if err := walk(name, 1); err != nil {
			return err
		}
	}
	return nil
}

// misplaced returns an error if a target can be reached from a built-in chain that does not allow it.
func (t *fakeTable) misplaced() error {
	for hook, builtIn := range t.chains {
		if builtIn.policy == "-" {
			continue
		}
		reached := map[string]bool{hook: true}
		for next := []string{hook}; len(next) > 0; next = next[1:] {
			for _, rule := range t.chains[next[0]].rules {
				if hooks := targets[rule.target].hooks; hooks != nil && !slices.Contains(hooks, hook) {
					return fmt.Errorf("RULE_APPEND failed (Invalid argument): rule in chain %s: %s is reached from %s", next[0], rule.target, hook)
				}
				if t.chains[rule.target] != nil && !reached[rule.target] {
					reached[rule.target] = true
					next = append(next, rule.target)
				}
			}
		}
	}
	return nil
}

func parseCounters(words string) (packets, bytes uint64, err error) {
	if words == "" {
		return 0, 0, nil
	}
	p, b, ok := strings.Cut(strings.Trim(words, "[]"), ":")
	packets, err1 := strconv.ParseUint(p, 10, 64)
	bytes, err2 := strconv.ParseUint(b, 10, 64)
	if !ok || err1 != nil || err2 != nil {
		return 0, 0, fmt.Errorf("%q are not counters", words)
	}
	return packets, bytes, nil
}
