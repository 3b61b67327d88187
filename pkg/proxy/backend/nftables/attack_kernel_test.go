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
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
	"github.com/seed-11a05479/kube-proxy/test/laws"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// TestKernelEveryChange has nft change objects of each kind in every way that it accepts: each change is noticed and repaired, by the
// third Sync at the latest, and the one after that writes nothing.
func TestKernelEveryChange(t *testing.T) {
	for _, family := range []nf.Family{nf.IPv4, nf.IPv6} {
		t.Run(family.String(), func(t *testing.T) {
			netns.Enter(t, "nft", "ip")
			if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			kernel, err := nft.Open(family, TableName)
			if err != nil {
				t.Fatal(err)
			}
			a := &attacked{T: t, table: family.String() + " " + TableName, b: newBackend(testOptions, kernel)}
			defer a.b.Close()
			a.p = diverse(t, a.b.families[0].Family())
			mustSync(t, a.b, a.p)
			rest(t, a.b, a.p)
			a.others()
			if family == nf.IPv6 && laws.Thorough(1, 0) == 1 {
				return // the rest is the same
			}
			for _, o := range a.kinds() {
				a.changes(o)
			}
			if a.tried < 200 {
				t.Errorf("nft accepted only %d changes", a.tried)
			}
		})
	}
}

// attacked is a table that nft changes in one way after the other.
type attacked struct {
	*testing.T
	table string
	b     *Backend
	p     *plan.Plan
	tried int
	// before are the lines after the last repair; nil if that failed.
	before []string
}

// diverse returns a plan with which the table has objects of all kinds.
func diverse(t *testing.T, family cluster.Family) *plan.Plan {
	t.Helper()
	w := clusters.NewRandom(4, 8)
	for range 5000 {
		p := w.Step()
		text := Mode{testOptions}.Render(p, family)
		if !slices.ContainsFunc(strings.Fields("affinity rate open pick pick-local nodeport-pick internal external local guarded-local fence fenced from remember"),
			func(kind string) bool {
				return !regexp.MustCompile(`(?m)^\t(chain|set|map) ` + kind + `-[0-9a-f]`).MatchString(text)
			}) {
			return p
		}
	}
	t.Fatal("no random cluster has all kinds of rules")
	return nil
}

// nft runs a script, and returns its output.
func (a *attacked) nft(script string, args ...string) (string, error) {
	command := exec.Command("nft", append(args, "-f", "-")...)
	command.Stdin = strings.NewReader(strings.ReplaceAll(script, "TABLE", a.table))
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

// objects lists the table, without counts.
func (a *attacked) objects() (all []object) {
	out, err := a.nft("list table TABLE", "-s")
	if err != nil {
		return nil // no table
	}
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case words[0] == "table":
			all = append(all, object{kind: "table"})
		case len(words) == 3 && words[2] == "{" && strings.HasPrefix(line, "\t") && line[1] != '\t':
			all = append(all, object{kind: words[0], name: words[1]})
		case line != "\t}\n" && line != "}\n":
			all[len(all)-1].lines = append(all[len(all)-1].lines, strings.TrimSpace(line))
		}
	}
	return all
}

// kinds lists an object of each kind, or all with THOROUGH=1.
func (a *attacked) kinds() (kinds []object) {
	numbers, seen := regexp.MustCompile(`-([0-9]+|[0-9a-f]{16})\b|-(sticky|source-hash|maglev|round-robin)`), map[string]bool{}
	for _, o := range a.objects() {
		kind := o.kind + " " + o.name
		if laws.Thorough(1, 0) == 1 {
			kind = strings.Replace(numbers.ReplaceAllString(kind, ""), "nodeport-", "", 1)
			if alike := o.declaration(); o.kind != "chain" && !strings.Contains(alike, "size") {
				kind = o.kind + alike
			}
		}
		if !seen[kind] {
			kinds = append(kinds, o)
		}
		seen[kind] = true
	}
	return kinds
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

// element is the first one of a set: its key, and what follows; "" without one.
func (o object) element() (key, rest string) {
	_, elements, _ := strings.Cut(strings.Join(o.lines, " "), "elements = {")
	first := regexp.MustCompile(`,|( }$)`).Split(strings.TrimSpace(elements), 2)[0]
	at := regexp.MustCompile(` (comment|counter|:|limit|timeout)|$`).FindStringIndex(first)[0]
	return strings.TrimSpace(first[:at]), first[at:]
}

// harmless is what stays after a repair. Comments, and the policy of a set, which the kernel had when it chose an implementation, say nothing to
// packets, and cannot be changed while the object is in use. An affinity map's timeout is for elements without one, which packets do not add.
// No rule goes to a quota or a limit. With a smaller size, an affinity map remembers fewer clients.
var harmless = regexp.MustCompile(`(?m) ?comment "[^"]*"|^(size 1073741824|policy memory|timeout 1h)$`)

// lines are the objects in a normal form: elements have no order, those that packets add are left out, and so is what is harmless.
func (a *attacked) lines() (all []string) {
	for _, o := range a.objects() {
		if o.name == chainLayout || o.kind == "quota" || o.kind == "limit" {
			continue
		}
		if strings.HasPrefix(o.name, affinityPrefix) {
			o.lines = slices.DeleteFunc(o.lines, func(line string) bool { return strings.HasPrefix(line, "size ") })
		}
		text := strings.TrimSpace(harmless.ReplaceAllString(strings.Join(o.lines, "\n"), ""))
		if head, elements, is := strings.Cut(text, "elements = {"); is {
			parts := strings.Split(strings.ReplaceAll(strings.TrimSuffix(elements, "}"), "\n", " "), ",")
			for i := range parts {
				parts[i] = strings.Join(strings.Fields(parts[i]), " ")
			}
			slices.Sort(parts)
			text = head + strings.Join(parts, "\n")
		}
		if strings.HasPrefix(o.kind, "chain") {
			text = strings.ReplaceAll(text, "\n", "; ") // their order matters
		}
		all = append(all, o.kind+" "+o.name)
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line != "" {
				all = append(all, o.kind+" "+o.name+": "+line)
			}
		}
	}
	slices.Sort(all)
	return all
}

// try makes a change, unless nft refuses it.
func (a *attacked) try(name, script string) {
	a.Helper()
	before := a.before
	if before == nil {
		before = a.lines()
	}
	if _, err := a.nft(script); err != nil {
		return
	}
	a.tried++
	differ := func() []string {
		return clusters.ChangedLines(strings.Join(before, "\n"), strings.Join(a.lines(), "\n"))
	}
	changed, drifts, failed, rested := differ(), 0, []error(nil), false
	start := time.Now()
	for syncs := 0; syncs < 4 && !rested; syncs++ {
		rested = true
		for range 2 { // an audit ends in between
			found, err := a.b.Check(a.Context())
			if err != nil {
				a.Fatalf("%s: Check: %v", name, err)
			}
			drifts, rested = drifts+len(found), rested && len(found) == 0
			awaitAudit(a.T, a.b)
		}
		for _, result := range a.b.Sync(a.Context(), a.p) {
			if result.Err != nil {
				failed = append(failed, result.Err)
			}
			rested = rested && result.Err == nil && result.Elements+result.Rules == 0
		}
	}
	a.before = before
	left := differ()
	for tries := 0; tries < 20 && len(left) > 0; tries++ { // while the kernel resizes a set it lists elements twice, or leaves some out
		time.Sleep(100 * time.Millisecond)
		left = differ()
	}
	if !rested || len(left) > 0 || drifts == 0 && len(changed) > 0 {
		a.Errorf("%s (%s): found %d times, rests: %t, after %s; left: %q; errors: %v", name, script, drifts, rested, time.Since(start), left, failed)
		_, _ = a.nft("delete table TABLE")
		a.before = nil
		rest(a.T, a.b, a.p)
	}
}

// changes tries all changes of an object.
func (a *attacked) changes(o object) {
	at := "TABLE " + o.name
	switch o.kind {
	case "chain":
		a.chain(o, at)
	case "set", "map":
		a.set(o, at)
	case "counter":
		a.try("reset "+o.name, "reset counter "+at)
		a.try("delete "+o.name, a.freed()+"delete counter "+at)
		a.try("quota in place of "+o.name, a.freed()+"delete counter "+at+"\nadd quota "+at+" { over 1 bytes; }")
	}
}

// freed is a script that flushes all chains and maps, so that nothing leads to a chain and nothing uses a set.
func (a *attacked) freed() (script string) {
	for _, o := range a.objects() {
		switch o.kind {
		case "chain":
			script += "flush chain TABLE " + o.name + "\n"
		case "map":
			script += "flush map TABLE " + o.name + "\n"
		}
	}
	return script
}

func (a *attacked) chain(o object, at string) {
	again := "delete chain " + at + "\nadd chain " + at
	a.try("flush "+o.name, "flush chain "+at)
	a.try("insert into "+o.name, "insert rule "+at+" accept")
	a.try("append to "+o.name, "add rule "+at+" counter")
	a.try("two rules in "+o.name, "insert rule "+at+" counter\ninsert rule "+at+" drop")
	a.try("a bound chain in "+o.name, "insert rule "+at+" jump { drop; }")
	a.try("rename "+o.name, "rename chain "+at+" other")
	a.try("exchange "+o.name, "rename chain "+at+" other\nadd chain "+at)
	a.try("delete "+o.name, a.freed()+"delete chain "+at)
	a.try("comment on "+o.name, a.freed()+again+" { comment \"harmless\"; }")
	a.try("another base chain "+o.name, a.freed()+again+" { type filter hook forward priority 7; policy drop; }")
	a.try("policy of "+o.name, "add chain "+at+" { policy drop; }")
	a.try("another chain "+o.name, "flush chain "+at+"\n"+again)
}

func (a *attacked) set(o object, at string) {
	add := "add " + o.kind + " " + at + " { "
	again := "delete " + o.kind + " " + at + "\n" + add
	a.try("flush "+o.name, "flush "+o.kind+" "+at)
	a.try("size of "+o.name, add+strings.Replace(o.declaration(), "size ", "size 5", 1)+" size 65000; }")
	a.try("smaller size of "+o.name, add+regexp.MustCompile(`size \d+;`).ReplaceAllString(o.declaration(), "")+" size 3; }")
	a.try("delete "+o.name, a.freed()+"delete "+o.kind+" "+at)
	if regexp.MustCompile("^(" + affinityPrefix + "|" + ratePrefix + "|" + openPrefix + ")").MatchString(o.name) {
		return // another declaration is for the quarantine: test/faults
	}
	for _, more := range []string{"policy memory;", "flags interval;", "comment \"harmless\";", "flags timeout; timeout 1h;", "flags timeout;", "flags constant;", "counter;", "size 2;", "quota 1 bytes;"} {
		a.try(o.name+" with "+more, a.freed()+again+o.declaration()+" "+more+" }")
	}
	other := "type ipv4_addr;"
	if o.kind == "map" {
		other = "type ipv4_addr : ipv4_addr;"
	}
	a.try("another type of "+o.name, a.freed()+again+other+" }")
	a.try("another type and size of "+o.name, a.freed()+again+other+" size 9; }")
	a.try("a map of counters "+o.name, a.freed()+"delete "+o.kind+" "+at+"\nadd map "+at+" { type ipv4_addr : counter; }")
	key, rest := o.element()
	if key == "" {
		return
	}
	remove, put := "delete element "+at+" { "+key+" }\n", "add element "+at+" { "
	value := ""
	if at := strings.LastIndex(rest, " : "); at >= 0 {
		value = rest[at:]
	}
	a.try("delete element of "+o.name, remove)
	a.try("comment in "+o.name, remove+put+key+" comment \"harmless\""+value+" }")
	a.try("quota in "+o.name, remove+put+key+" quota 1 bytes"+value+" }")
	a.try("timeout in "+o.name, remove+put+key+" timeout 1h"+value+" }")
	for _, verdict := range []string{"drop", "accept", "jump unserved", "goto unserved"} {
		a.try(verdict+" in "+o.name, remove+put+key+" : "+verdict+" }")
		a.try(verdict+" of all others in "+o.name, put+"* : "+verdict+" }")
	}
	a.try("all others in "+o.name, put+"*"+value+" }")
}

// others tries changes of the table, and adds objects of others.
func (a *attacked) others() {
	objects := a.objects()
	sized := objects[slices.IndexFunc(objects, func(o object) bool { return strings.HasPrefix(o.name, "pick-") })].name
	for _, script := range []string{
		"add table TABLE { flags dormant; }",
		"flush table TABLE",
		"delete table TABLE",
		"flush ruleset",
		"delete table TABLE\nadd table TABLE { comment \"harmless\"; }",
		"delete table TABLE\nadd table TABLE { flags dormant; }",
		"add chain TABLE evil { type filter hook forward priority -5; policy drop; }",
		"add chain TABLE evil\nadd rule TABLE evil jump { drop; }",
		"add chain TABLE evil { type filter hook forward priority -5; }\nadd rule TABLE evil jump { drop; }",
		"add chain TABLE evil\nadd set TABLE evils { type ipv4_addr; flags constant; elements = { 192.0.2.1 } }\nadd rule TABLE evil ip saddr @evils drop",
		"add chain TABLE evil\nadd set TABLE evils { type ipv4_addr; flags interval; elements = { 192.0.2.0/24 } }\nadd rule TABLE evil ip saddr @evils drop",
		"add map TABLE evil { type ipv4_addr : verdict; elements = { 192.0.2.1 : goto " + sized + " } }",
		"add chain TABLE evil\nadd rule TABLE evil jump " + sized,
		"add map TABLE evil { type mark : verdict; elements = { 1 : drop } }\ninsert rule TABLE services meta mark vmap @evil",
		"add map TABLE evil { type mark : verdict; flags constant; elements = { 1 : drop } }\ninsert rule TABLE services meta mark vmap @evil",
		"add chain TABLE evil\nadd chain TABLE evils\nadd rule TABLE evil goto evils",
		"add counter TABLE c\nadd map TABLE evil { type mark : counter; elements = { 1 : \"c\" } }\ninsert rule TABLE services counter name meta mark map @evil\ndelete table TABLE",
		"add quota TABLE q { over 1 bytes; }\ninsert rule TABLE services quota name \"q\" drop",
		"add limit TABLE l { rate 1/second; }",
		"add flowtable TABLE f { hook ingress priority 0; devices = { lo }; }",
		"add flowtable TABLE f { hook ingress priority 0; devices = { lo }; }\ninsert rule TABLE filter-forward meta l4proto tcp flow add @f",
		"add set TABLE evils { type ipv4_addr; }\nadd chain TABLE pick-99",
		"add map TABLE affinity-0000000000000000 { type ipv4_addr : ipv4_addr; }",
		"add set TABLE affinity-0000000000000000 { type ipv4_addr; }",
		"add chain TABLE pick-77 { type filter hook forward priority 0; policy drop; }",
		"delete chain TABLE layout\nadd chain TABLE layout { type filter hook forward priority 0; policy drop; }",
		"add rule TABLE layout drop",
		"insert rule TABLE services jump layout\nadd rule TABLE layout drop",
		"delete chain TABLE layout",
		"rename chain TABLE layout other",
	} {
		a.try("a script", script)
	}
}
