package iptables_test

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
	"github.com/seed-11a05479/kube-proxy/test/laws"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// TestKernelEveryChange has iptables and nft change chains of each kind in every way that they accept: each change is noticed and repaired by
// the next Sync, and the one after that writes nothing. Left out is what is others': their chains and rules, such as a chain of ours that was
// renamed, the priorities and policies of built-in chains, and the place of a jump among others' rules. Counters start again.
func TestKernelEveryChange(t *testing.T) {
	for _, variant := range []ipt.Variant{ipt.NFT, ipt.Legacy} {
		t.Run(string(variant), func(t *testing.T) {
			netns.Enter(t, "nft", "iptables-nft", "iptables-legacy")
			b, err := open(variant)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			a, w := &attacked{T: t, variant: variant, b: b}, clusters.NewRandom(4, 12)
			for range 8 {
				a.p = w.Step()
			}
			laws.Sync(t, b, a.p)
			if _, err := b.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, c := range a.kinds() {
				a.changes(c)
			}
			for _, family := range []string{"ip", "ip6"} {
				for _, table := range []string{"nat", "filter"} {
					a.table(family, table)
				}
			}
			if a.tried < 100 {
				t.Errorf("only %d changes were accepted", a.tried)
			}
		})
	}
}

// attacked are tables that other programs change in one way after the other.
type attacked struct {
	*testing.T
	variant ipt.Variant
	b       backend.Backend
	p       *plan.Plan
	tried   int
}

// chainIn is a chain of a table, with the number of its rules.
type chainIn struct {
	family, table, name string
	rules               int
}

// run runs commands of a shell.
func (a *attacked) run(script string) (string, error) {
	script = regexp.MustCompile(`\b(ip6?tables)\b`).ReplaceAllString(script, "$1-"+string(a.variant))
	out, err := exec.Command("sh", "-e", "-c", script).Output()
	return string(out), err
}

// chains lists all chains, with their rules.
func (a *attacked) chains() map[chainIn][]string {
	found := map[chainIn][]string{}
	for _, family := range []string{"ip", "ip6"} {
		out, _ := a.run(family + "tables-save") // without a table that it cannot list
		table := ""
		for line := range strings.Lines(strings.ReplaceAll(out, "tables-save", "")) {
			words := strings.Fields(line)
			switch {
			case len(words) == 0:
			case words[0][0] == '*':
				table = words[0][1:]
			case words[0][0] == ':':
				found[chainIn{family, table, words[0][1:], 0}] = nil
			case words[0] == "-A":
				of := chainIn{family, table, words[1], 0}
				found[of] = append(found[of], strings.TrimSpace(line))
			}
		}
	}
	return found
}

// ours reports whether a chain has a name that only this proxy uses here.
func (c chainIn) ours() bool { return strings.HasPrefix(c.name, "KUBE-") }

// lines are our rules in our chains, each with its place, and those in built-in chains, and what makes packets meet these.
func (a *attacked) lines() (all []string) {
	for c, rules := range a.chains() {
		at := c.family + " " + c.table + " "
		if c.ours() {
			all = append(all, at+c.name)
		}
		for i, rule := range rules {
			if c.ours() {
				rule = fmt.Sprintf("%s (%d)", rule, i)
			}
			if c.ours() || !strings.HasPrefix(c.name, "OTHER") && strings.Contains(rule, "-j KUBE-") {
				all = append(all, at+rule)
			}
		}
	}
	out, err := exec.Command("nft", "-s", "list", "ruleset").Output()
	if err != nil {
		a.Fatal(err)
	}
	table, hooked := "", regexp.MustCompile(`^\s*type (nat hook (pre|out|post)|filter hook (in|for|out)put|filter hook forward)\w*|^\sflags dormant`)
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "table ") {
			table = line
		}
		if is := hooked.FindString(line); is != "" && !strings.Contains(table, "mangle") {
			all = append(all, table+is)
		}
	}
	slices.Sort(all)
	return slices.Compact(all) // a built-in chain that was renamed still has its hook
}

// kinds lists a chain of each kind of ours, and the built-in ones that lead to them.
func (a *attacked) kinds() (kinds []chainIn) {
	seen := map[chainIn]bool{}
	for c, rules := range a.chains() {
		kind := c
		if c.ours() {
			kind.family, kind.name = "", regexp.MustCompile(`-[A-Z0-9]{16}$`).ReplaceAllString(c.name, "")
		}
		jumps := slices.ContainsFunc(rules, func(rule string) bool { return strings.Contains(rule, "-j KUBE-") })
		if seen[kind] || !c.ours() && !jumps {
			continue
		}
		seen[kind] = true
		c.rules = len(rules)
		kinds = append(kinds, c)
	}
	return kinds
}

// try makes a change, unless it is refused.
func (a *attacked) try(script string) {
	a.Helper()
	before := a.lines()
	if _, err := a.run(script); err != nil {
		a.b.Sync(a.Context(), a.p) // part of it may have been made
		return
	}
	a.tried++
	differ := func() []string {
		return clusters.ChangedLines(strings.Join(before, "\n"), strings.Join(a.lines(), "\n"))
	}
	changed, drifts, rested := differ(), 0, false
	for syncs := 0; syncs < 3 && !rested; syncs++ {
		found, err := a.b.Check(a.Context())
		if err != nil {
			a.Fatalf("%s: Check: %v", script, err)
		}
		drifts, rested = drifts+len(found), len(found) == 0
		elements, rules := laws.Sync(a.T, a.b, a.p)
		rested = rested && elements+rules == 0
	}
	if left := differ(); !rested || len(left) > 0 || drifts == 0 && len(changed) > 0 {
		a.Errorf("%s: found %d times, rests: %t, left: %q", script, drifts, rested, left)
		_, _ = a.run("nft flush ruleset")
		for range 3 {
			_, _ = a.b.Check(a.Context())
			a.b.Sync(a.Context(), a.p)
		}
	}
}

// changes tries all changes of a chain.
func (a *attacked) changes(c chainIn) {
	program, at := c.family+"tables -w -t "+c.table+" ", c.family+" "+c.table+" "+c.name
	a.try(program + "-F " + c.name)
	a.try(program + "-Z " + c.name)
	a.try(program + "-I " + c.name + " -j RETURN")
	_, _ = a.run(program + "-D " + c.name + " -j RETURN") // from a built-in chain
	if c.rules > 0 {
		a.try(program + "-D " + c.name + " 1")
	}
	again := "nft flush chain " + at + "; nft delete chain " + at + "; nft add chain " + at
	switch {
	case !c.ours() && a.variant == ipt.NFT:
		a.try(again)
		a.try(again + "; nft add rule " + at + " counter")
		a.try("nft flush chain " + at + "; nft delete chain " + at)
		a.try(again + " '{ type filter hook prerouting priority 5; }'")
		a.try("nft rename chain " + at + " OTHER || nft rename chain " + at + " OTHERS")
	case c.ours():
		a.try(program + "-A " + c.name + " -j RETURN")
		if c.rules > 0 {
			a.try(program + "-R " + c.name + " 1 -j RETURN")
		}
		if c.rules > 1 {
			a.try(program + "-I " + c.name + " 2 -j RETURN")
		}
		a.try(program + "-E " + c.name + " OTHER")
		_, _ = a.run(program + "-F OTHER")
		a.try(program + "-E " + c.name + " OTHERS; " + program + "-N " + c.name)
		_, _ = a.run(program + "-F OTHERS")
	}
	if c.ours() && a.variant == ipt.NFT {
		for _, rule := range []string{"counter", c.family + " " + map[string]string{"ip": "ttl", "ip6": "hoplimit"}[c.family] + " set 1", "meta mark set 5", "ct state new counter", "jump '{ return; }'"} {
			a.try("nft add rule " + at + " " + rule)
			a.try("nft insert rule " + at + " " + rule)
		}
	}
}

// table tries changes of a whole table.
func (a *attacked) table(family, table string) {
	of := family + " " + table
	a.try(family + "tables -w -t " + table + " -F")
	if a.variant == ipt.Legacy {
		return
	}
	dormant := "nft add table " + of + " '{ flags dormant; }'"
	a.try(dormant)
	a.try(family + "tables -w -t " + table + " -F; " + dormant)
	a.try("nft delete table " + of)
	a.try("nft delete table " + of + "; nft add table " + of)
	a.try("nft delete table " + of + "; " + dormant)
	a.try("nft flush ruleset")
}
