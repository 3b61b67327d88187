package iptables_test

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
	"github.com/seed-11a05479/kube-proxy/test/laws"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// attacked are tables that other programs damage in one way after the other.
type attacked struct {
	*testing.T
	variant ipt.Variant
	b       backend.Backend
	p       *plan.Plan
}

// run runs commands of a shell.
func (a *attacked) run(script string) (string, error) {
	script = strings.NewReplacer("iptables-restore", "iptables-"+string(a.variant)+"-restore", "ip6tables ", "ip6tables-"+string(a.variant)+" ", "iptables ", "iptables-"+string(a.variant)+" ").Replace(script)
	out, err := exec.Command("sh", "-e", "-c", script).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", script, err, out)
	}
	return string(out), err
}

var counters = regexp.MustCompile(`\[\d+:\d+\]`)

// lines are the rules with their tables and places, and the chains with their hooks.
func (a *attacked) lines() (all []string) {
	for _, program := range []string{"iptables-" + string(a.variant) + "-save", "ip6tables-" + string(a.variant) + "-save"} {
		out, err := exec.Command(program).CombinedOutput()
		if err != nil {
			a.Logf("%s: %v: %s", program, err, out)
		}
		table, number := "", map[string]int{}
		for line := range strings.Lines(string(out)) {
			line = counters.ReplaceAllString(strings.TrimSpace(line), "")
			switch {
			case strings.HasPrefix(line, "*"):
				table = program + line + " "
			case strings.HasPrefix(line, "-A "):
				chain := table + strings.Fields(line)[1]
				number[chain]++
				all = append(all, fmt.Sprintf("%s%s %d", table, line, number[chain]))
			case strings.HasPrefix(line, ":"):
				all = append(all, table+line)
			}
		}
	}
	if out, err := exec.Command("nft", "-s", "list", "ruleset").Output(); err == nil && a.variant == ipt.NFT {
		table := ""
		for line := range strings.Lines(string(out)) {
			if strings.HasPrefix(line, "table ") {
				table = line
			}
			if strings.Contains(line, " hook ") || strings.Contains(line, "flags") && !strings.Contains(line, "tcp") {
				all = append(all, table+line)
			}
		}
	}
	slices.Sort(all)
	return all
}

func (a *attacked) try(name, script string) {
	before := a.lines()
	if _, err := a.run(script); err != nil {
		a.Logf("REFUSED %s: %v", name, err)
		return
	}
	changed := clusters.ChangedLines(strings.Join(before, "\n"), strings.Join(a.lines(), "\n"))
	start, drifts, failed, rested, rounds := time.Now(), 0, []string(nil), false, 0
	for ; rounds < 6 && !rested; rounds++ {
		found, err := a.b.Check(a.Context())
		if err != nil {
			failed = append(failed, "check: "+err.Error())
		}
		drifts += len(found)
		rested = len(found) == 0
		for _, result := range a.b.Sync(a.Context(), a.p) {
			if result.Err != nil {
				failed, rested = append(failed, result.Err.Error()), false
			}
			rested = rested && result.Elements+result.Rules == 0
		}
	}
	took := time.Since(start)
	left := clusters.ChangedLines(strings.Join(before, "\n"), strings.Join(a.lines(), "\n"))
	state := "ok"
	switch {
	case len(left) > 0 && drifts == 0:
		state = "UNNOTICED"
	case len(left) > 0:
		state = "LEFT"
	case !rested:
		state = "ENDLESS"
	case drifts == 0 && len(changed) > 0:
		state = "SILENT"
	case len(failed) > 0:
		state = "failed, then ok"
	case took > time.Second:
		state = "SLOW"
	}
	a.Logf("%s %s: %d lines, %d drifts, %d rounds, %s; left %q; errors %q", state, name, len(changed), drifts, rounds, took, left, failed)
	if len(left) > 0 || !rested {
		for _, table := range []string{"nat", "filter", "mangle"} {
			for _, family := range []string{"ip", "ip6"} {
				if a.variant == ipt.NFT {
					a.run("nft delete table " + family + " " + table)
				} else {
					a.run(strings.Replace("iptables -t "+table+" -F; iptables -t "+table+" -X", "ip", family, -1))
				}
			}
		}
		for range 3 {
			a.b.Check(a.Context())
			a.b.Sync(a.Context(), a.p)
		}
	}
}

// TestKernelEveryChange tries every kind of change of every object.
func TestKernelEveryChange(t *testing.T) {
	for _, variant := range []ipt.Variant{ipt.NFT, ipt.Legacy} {
		t.Run(string(variant), func(t *testing.T) {
			netns.Enter(t, "nft", "iptables-nft", "iptables-legacy")
			b, err := open(variant)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			w := clusters.NewRandom(4, 12)
			a := &attacked{T: t, variant: variant, b: b}
			for range 8 {
				a.p = w.Step()
			}
			laws.Sync(t, b, a.p)
			b.Check(t.Context())
			a.everything()
		})
	}
}

func (a *attacked) everything() {
	seen := map[string]bool{}
	for _, line := range a.lines() {
		program, rest, _ := strings.Cut(line, "*")
		words := strings.Fields(rest)
		if len(words) < 2 || !strings.HasPrefix(words[1], ":") {
			continue
		}
		family := strings.TrimSuffix(strings.Split(program, "-")[0], "tables")
		table, chain := words[0], words[1][1:]
		kind := family + table + chain
		if strings.HasPrefix(chain, "KUBE-S") && len(chain) > 20 {
			kind = family + table + chain[:9]
		}
		if seen[kind] {
			continue
		}
		seen[kind] = true
		ipt := family + "tables -t " + table + " "
		name := family + " " + table + " " + chain
		nft := family + " " + table + " " + chain
		builtin := !strings.HasPrefix(chain, "KUBE-")
		rules := 0
		for _, l := range a.lines() {
			if strings.HasPrefix(l, program+"*"+table+" -A "+chain+" ") {
				rules++
			}
		}
		a.Logf("HAVE %s %d rules", name, rules)
		a.try("flush "+name, ipt+"-F "+chain)
		if !builtin {
			a.try("insert "+name, ipt+"-I "+chain+" -j RETURN")
			a.try("append "+name, ipt+"-A "+chain+" -j RETURN")
			a.try("rename "+name, ipt+"-E "+chain+" OTHER")
			a.try("exchange "+name, ipt+"-E "+chain+" OTHER; "+ipt+"-N "+chain)
			if rules > 0 {
				a.try("replace "+name, ipt+"-R "+chain+" 1 -j RETURN")
			}
			if rules > 1 {
				a.try("second "+name, ipt+"-I "+chain+" 2 -j RETURN")
			}
		} else {
			a.try("zero "+name, ipt+"-Z "+chain)
		}
		if rules > 0 {
			a.try("delete "+name, ipt+"-D "+chain+" 1")
		}
		if a.variant == "nft" && builtin {
			a.try("plain "+name, "nft flush chain "+nft+"; nft delete chain "+nft+"; nft add chain "+nft)
			a.try("plain, filled "+name, "nft flush chain "+nft+"; nft delete chain "+nft+"; nft add chain "+nft+"; nft add rule "+nft+" counter accept")
			a.try("missing "+name, "nft flush chain "+nft+"; nft delete chain "+nft)
			a.try("filter "+name, "nft flush chain "+nft+"; nft delete chain "+nft+"; nft add chain "+nft+" '{ type filter hook forward priority 5; }'")
			a.try("priority "+name, "nft flush chain "+nft+"; nft delete chain "+nft+"; nft add chain "+nft+" '{ type "+map[bool]string{true: "nat", false: "filter"}[table == "nat"]+" hook "+strings.ToLower(chain)+" priority 55; }'")
		}
		if a.variant == "nft" && !builtin {
			a.try("bound "+name, "nft insert rule "+nft+" jump '{ return; }'")
			a.try("nft rule "+name, "nft insert rule "+nft+" ip version 4 counter accept || nft insert rule "+nft+" ip6 version 6 counter accept")
			a.try("nft appended "+name, "nft add rule "+nft+" counter")
		}
	}
	for _, family := range []string{"ip", "ip6"} {
		ipt := family + "tables "
		for _, table := range []string{"nat", "filter", "mangle"} {
			a.try(family+" flush all of "+table, ipt+"-t "+table+" -F")
			a.try(family+" extra chain "+table, ipt+"-t "+table+" -N KUBE-SVC-EVIL; "+ipt+"-t "+table+" -A KUBE-SVC-EVIL -j ACCEPT")
			a.try(family+" extra SEP "+table, ipt+"-t "+table+" -N KUBE-SEP-EVIL; "+ipt+"-t "+table+" -A KUBE-SEP-EVIL -j ACCEPT")
			a.try(family+" first rule "+table, ipt+"-t "+table+" -I OUTPUT -j RETURN")
			a.run(ipt + "-t " + table + " -D OUTPUT -j RETURN")
			if a.variant == "nft" {
				a.try(family+" dormant "+table, "nft add table "+family+" "+table+" '{ flags dormant; }'")
				a.try(family+" dormant and flushed "+table, ipt+"-t "+table+" -F; nft add table "+family+" "+table+" '{ flags dormant; }'")
				a.try(family+" delete "+table, "nft delete table "+family+" "+table)
				a.try(family+" empty "+table, "nft delete table "+family+" "+table+"; nft add table "+family+" "+table)
				a.try(family+" dormant anew "+table, "nft delete table "+family+" "+table+"; nft add table "+family+" "+table+" '{ flags dormant; }'")
				a.try(family+" counter in "+table, "nft add counter "+family+" "+table+" c")
			}
		}
		a.try(family+" duplicate jump", ipt+"-t nat -I PREROUTING -m comment --comment 'kubernetes service portals' -j KUBE-SERVICES")
		a.try(family+" policy", ipt+"-P FORWARD DROP; "+ipt+"-P FORWARD ACCEPT")
	}
	if a.variant == "nft" {
		a.try("flush ruleset", "nft flush ruleset")
	}
}
