package nftables

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// attacked is a table that nft damages in one way after the other.
type attacked struct {
	*testing.T
	table string
	b     *Backend
	p     *plan.Plan
}

// nft runs a script, and returns its output.
func (a *attacked) nft(script string, args ...string) (string, error) {
	command := exec.Command("nft", append(args, "-f", "-")...)
	command.Stdin = strings.NewReader(script)
	out, err := command.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return string(out), err
}

// object is one of the table, as nft lists it.
type object struct {
	kind, name string
	lines      []string
}

// declaration is that of a set, without its elements.
func (o object) declaration() string {
	var kept []string
	for _, line := range o.lines {
		if strings.HasPrefix(line, "elements") {
			break
		}
		kept = append(kept, line+";")
	}
	return strings.Join(kept, " ")
}

// element is the first one of a set; "" without one.
func (o object) element() (key, rest string) {
	_, elements, _ := strings.Cut(strings.Join(o.lines, " "), "elements = {")
	first := regexp.MustCompile(`,| }$`).Split(strings.TrimSpace(elements), 2)[0]
	at := regexp.MustCompile(` (comment|counter|:)|$`).FindStringIndex(first)[0]
	return strings.TrimSpace(first[:at]), first[at:]
}

// objects lists the table, without counts.
func (a *attacked) objects() (all []object) {
	a.Helper()
	out, err := a.nft("list table "+a.table, "-s")
	if err != nil {
		return nil // no table
	}
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0] == "table":
		case len(words) == 3 && words[2] == "{" && strings.HasPrefix(line, "\t") && line[1] != '\t':
			all = append(all, object{kind: words[0], name: words[1]})
		case line != "\t}\n" && line != "}\n":
			all[len(all)-1].lines = append(all[len(all)-1].lines, strings.TrimSpace(line))
		}
	}
	return all
}

// lines are the objects in a normal form: elements and slots have no order, and the record changes.
func (a *attacked) lines() (all []string) {
	for _, o := range a.objects() {
		if o.name == chainLayout {
			o.lines = nil
		}
		text := strings.Join(o.lines, "\n")
		if head, elements, is := strings.Cut(text, "elements = {"); is {
			parts := strings.Split(strings.ReplaceAll(strings.TrimSuffix(elements, "}"), "\n", " "), ",")
			for i := range parts {
				parts[i] = strings.Join(strings.Fields(parts[i]), " ")
			}
			slices.Sort(parts)
			text = head + strings.Join(parts, "\n")
		}
		if strings.HasPrefix(o.name, affinityPrefix) {
			text, _, _ = strings.Cut(text, "elements = {")
		}
		for line := range strings.Lines(text) {
			all = append(all, o.kind+" "+o.name+": "+strings.TrimSpace(line))
		}
		all = append(all, o.kind+" "+o.name)
	}
	slices.Sort(all)
	return all
}

// try damages the table, and reports what is not repaired.
func (a *attacked) try(name, script string) {
	before := a.lines()
	script = strings.ReplaceAll(script, "TABLE", a.table)
	if _, err := a.nft(script); err != nil {
		a.Logf("REFUSED %s: %v", name, err)
		return
	}
	changed := clusters.ChangedLines(strings.Join(before, "\n"), strings.Join(a.lines(), "\n"))
	start, drifts, failed := time.Now(), 0, []string(nil)
	rested := false
	rounds := 0
	for ; rounds < 6 && !rested; rounds++ {
		found, err := a.b.Check(a.Context())
		if err != nil {
			failed = append(failed, "check: "+err.Error())
		}
		awaitAudit(a.T, a.b)
		more, err := a.b.Check(a.Context())
		if err != nil {
			failed = append(failed, "check: "+err.Error())
		}
		drifts += len(found) + len(more)
		rested = len(found)+len(more) == 0
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
		a.nft("delete table " + a.table)
		for range 3 {
			a.b.Check(a.Context())
			a.b.Sync(a.Context(), a.p)
		}
	}
}

// TestKernelEveryChange tries every kind of change of every object.
func TestKernelEveryChange(t *testing.T) {
	for _, family := range []nf.Family{nf.IPv4, nf.IPv6} {
		t.Run(family.String(), func(t *testing.T) {
			netns.Enter(t, "nft")
			kernel, err := nft.Open(family, TableName)
			if err != nil {
				t.Fatal(err)
			}
			w := clusters.NewRandom(4, 12)
			a := &attacked{T: t, table: family.String() + " " + TableName, b: newBackend(testOptions, kernel)}
			defer a.b.Close()
			for range 8 {
				a.p = w.Step()
			}
			mustSync(t, a.b, a.p)
			rest(t, a.b, a.p)
			a.everything()
		})
	}
}

func (a *attacked) everything() {
	objects := a.objects()
	var flush, dropElements string
	for _, o := range objects {
		if o.kind == "chain" {
			flush += "flush chain TABLE " + o.name + "\n"
		} else if o.kind == "map" {
			dropElements += "flush map TABLE " + o.name + "\n"
		}
	}
	free := flush + dropElements
	for _, o := range objects {
		a.Logf("HAVE %s %s (%d lines)", o.kind, o.name, len(o.lines))
		at := "TABLE " + o.name
		switch o.kind {
		case "chain":
			hooked := len(o.lines) > 0 && strings.HasPrefix(o.lines[0], "type ")
			a.try("flush "+o.name, "flush chain "+at)
			a.try("insert into "+o.name, "insert rule "+at+" accept")
			a.try("append to "+o.name, "add rule "+at+" counter")
			a.try("second in "+o.name, "insert rule "+at+" counter\ninsert rule "+at+" drop")
			a.try("bind in "+o.name, "insert rule "+at+" jump { drop; }")
			a.try("rename "+o.name, "rename chain "+at+" other")
			a.try("comment "+o.name, free+"delete chain "+at+"\nadd chain "+at+" { comment \"other\"; }")
			a.try("base "+o.name, free+"delete chain "+at+"\nadd chain "+at+" { type filter hook forward priority 7; policy drop; }")
			if hooked {
				a.try("policy "+o.name, "add chain "+at+" { policy drop; }")
				a.try("plain "+o.name, "flush chain "+at+"\ndelete chain "+at+"\nadd chain "+at)
			} else {
				a.try("exchange "+o.name, "rename chain "+at+" other\nadd chain "+at)
			}
		case "set", "map":
			add := "add " + o.kind + " " + at
			a.try("flush "+o.name, "flush "+o.kind+" "+at)
			a.try("size "+o.name, add+" { "+o.declaration()+" size 65000; }")
			for what, more := range map[string]string{"policy": "policy memory;", "interval": "flags interval;", "comment": "comment \"x\";", "timeout": "flags timeout; timeout 1h;", "gc": "flags timeout; gc-interval 1s;", "merge": "auto-merge;"} {
				a.try("recreate with "+what+" "+o.name, free+"delete "+o.kind+" "+at+"\n"+add+" { "+o.declaration()+" "+more+" }")
			}
			other := "type ipv4_addr;"
			if o.kind == "map" {
				other = "type ipv4_addr : ipv4_addr;"
			}
			a.try("other type "+o.name, free+"delete "+o.kind+" "+at+"\n"+add+" { "+other+" }")
			a.try("other kind "+o.name, free+"delete "+o.kind+" "+at+"\nadd map "+at+" { type ipv4_addr : counter; }")
			a.try("counter "+o.name, free+"delete "+o.kind+" "+at+"\n"+add+" { "+o.declaration()+" counter; }")
			a.try("nothing of "+o.name, free+"delete "+o.kind+" "+at)
			key, rest := o.element()
			if key == "" {
				continue
			}
			remove := "delete element " + at + " { " + key + " }\n"
			put := "add element " + at
			a.try("delete of "+o.name, remove)
			a.try("comment in "+o.name, remove+put+" { "+key+" comment \"evil\" "+rest[strings.LastIndex(" :"+rest, " :"):]+" }")
			a.try("limit in "+o.name, remove+put+" { "+key+" limit rate 1/minute "+rest+" }")
			a.try("quota in "+o.name, remove+put+" { "+key+" quota 1 bytes "+rest+" }")
			a.try("timeout in "+o.name, remove+put+" { "+key+" timeout 1h "+rest+" }")
			if o.kind == "map" {
				a.try("verdict in "+o.name, remove+put+" { "+key+" : drop }")
				a.try("default of "+o.name, put+" { * : drop }")
			}
		case "counter":
			a.try("reset "+o.name, "reset counter "+at)
			a.try("quota for "+o.name, flush+"delete counter "+at+"\nadd quota "+at+" { over 1 bytes; }")
			a.try("quota beside "+o.name, "add quota "+at+" { over 1 bytes; }")
			a.try("nothing of "+o.name, flush+"delete counter "+at)
		case "flowtable":
			a.try("flags "+o.name, "add flowtable "+at+" { hook ingress priority 0; }")
			a.try("priority "+o.name, flush+"delete flowtable "+at+"\nadd flowtable "+at+" { hook ingress priority 5; }")
			a.try("nothing of "+o.name, flush+"delete flowtable "+at)
		}
	}
	sized := objects[slices.IndexFunc(objects, func(o object) bool { return strings.HasPrefix(o.name, "pick") })].name
	for name, script := range map[string]string{
		"dormant":              "add table TABLE { flags dormant; }",
		"flush table":          "flush table TABLE",
		"delete table":         "delete table TABLE",
		"flush ruleset":        "flush ruleset",
		"table comment":        "delete table TABLE\nadd table TABLE { comment \"x\"; }",
		"dormant anew":         "delete table TABLE\nadd table TABLE { flags dormant; }",
		"base chain drops":     "add chain TABLE evil { type filter hook forward priority -5; policy drop; }",
		"bound chain":          "add chain TABLE evil\nadd rule TABLE evil jump { drop; }",
		"bound in base":        "add chain TABLE evil { type filter hook forward priority -5; }\nadd rule TABLE evil jump { drop; }",
		"constant set":         "add chain TABLE evil\nadd set TABLE evilset { type ipv4_addr; flags constant; elements = { 192.0.2.1 } }\nadd rule TABLE evil ip saddr @evilset drop",
		"interval set":         "add chain TABLE evil\nadd set TABLE evilset { type ipv4_addr; flags interval; elements = { 192.0.2.0/24 } }\nadd rule TABLE evil ip saddr @evilset drop",
		"map to ours":          "add map TABLE evil { type ipv4_addr : verdict; elements = { 192.0.2.1 : goto " + sized + " } }",
		"chain to ours":        "add chain TABLE evil\nadd rule TABLE evil jump " + sized,
		"base to ours":         "add chain TABLE evil { type nat hook prerouting priority -200; }\nadd rule TABLE evil jump " + sized,
		"map in ours":          "add map TABLE evil { type ipv4_addr : verdict; elements = { 192.0.2.1 : drop } }\ninsert rule TABLE services ip daddr vmap @evil",
		"chains in a circle":   "add chain TABLE evil\nadd chain TABLE evil2\nadd rule TABLE evil goto evil2",
		"object map":           "add counter TABLE c\nadd map TABLE evil { type ipv4_addr : counter; elements = { 192.0.2.1 : \"c\" } }",
		"object map used":      "add counter TABLE c\nadd map TABLE evil { type ipv4_addr : counter; elements = { 192.0.2.1 : \"c\" } }\ninsert rule TABLE services counter name ip daddr map @evil",
		"quota used":           "add quota TABLE q { over 1 bytes; }\ninsert rule TABLE services quota name \"q\" drop",
		"limit":                "add limit TABLE l { rate 1/second; }",
		"flowtable":            "add flowtable TABLE f { hook ingress priority 0; devices = { lo }; }",
		"flowtable used":       "add flowtable TABLE f { hook ingress priority 0; devices = { lo }; }\ninsert rule TABLE filter-forward flow add @f",
		"own name, other kind": "add set TABLE other-services { type ipv4_addr; }\nadd chain TABLE pick-99",
		"affinity map":         "add map TABLE affinity-0000000000000000 { type ipv4_addr : ipv4_addr; }",
		"affinity set":         "add set TABLE affinity-0000000000000000 { type ipv4_addr; }",
		"sized chain, hooked":  "add chain TABLE pick-77 { type filter hook forward priority 0; policy drop; }",
		"record hooked":        "delete chain TABLE layout\nadd chain TABLE layout { type filter hook forward priority 0; policy drop; }",
		"record filled":        "add rule TABLE layout drop",
		"record called":        "insert rule TABLE services jump layout\nadd rule TABLE layout drop",
		"record deleted":       "delete chain TABLE layout",
		"record renamed":       "rename chain TABLE layout other",
	} {
		a.try(name, script)
	}
}
