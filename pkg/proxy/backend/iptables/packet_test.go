package iptables

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt/ipttest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// tablesOf holds rules as words, by table and chain.
type tablesOf map[string]map[string][][]string

func parsed(t *testing.T, dump string) tablesOf {
	t.Helper()
	all := tablesOf{}
	table := ""
	for line := range strings.Lines(dump) {
		words, err := ipt.Words(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case words[0][0] == '*':
			table = words[0][1:]
			all[table] = map[string][][]string{}
		case words[0] == "-A":
			all[table][words[1]] = append(all[table][words[1]], words[2:])
		}
	}
	return all
}

// walker simulates a packet in one table.
type walker struct {
	t      *testing.T
	rules  map[string][][]string
	packet plan.Packet
	// own means that the source is this machine.
	own bool
	// shares holds, for each possible endpoint, its probability.
	shares map[netip.AddrPort]float64
	// verdict is the result; Balance if no rule decided.
	verdict plan.Verdict
	// marked means that the packet has the mark, masqueraded that it had the mark when it was sent to an endpoint.
	marked      bool
	masqueraded map[netip.AddrPort]bool
}

// walk enters a chain with a probability, and returns the probability that the packet returns from it.
func (w *walker) walk(chain string, chance float64) float64 {
	for _, rule := range w.rules[chain] {
		p := w.matches(rule)
		if p == 0 {
			continue
		}
		at := slices.IndexFunc(rule, func(word string) bool { return word == "-j" || word == "-g" })
		switch target := rule[at+1]; target {
		case "RETURN":
			return chance
		case "ACCEPT":
			return 0
		case "REJECT", "DROP":
			w.verdict = plan.Reject
			if target == "DROP" {
				w.verdict = plan.Drop
			}
			return 0
		case "MARK":
			w.marked = true
		case "DNAT":
			to := netip.MustParseAddrPort(rule[at+3])
			w.shares[to] += chance * p
			w.masqueraded[to] = w.marked
			chance *= 1 - p
		default:
			marked := w.marked
			back := w.walk(target, chance*p)
			if back == 0 { // packets that did not enter the chain continue
				w.marked = marked
			}
			if rule[at] == "-g" {
				return back
			}
			chance = chance*(1-p) + back
		}
		if chance == 0 {
			return 0
		}
	}
	return chance
}

// matches returns the probability that the packet matches a rule. Lists of clients are empty.
func (w *walker) matches(rule []string) float64 {
	not := false
	is := func(holds bool) bool { return holds != not }
	chance := 1.0
	for i, word := range rule {
		switch word {
		case "-d", "-s":
			addr := w.packet.To.Addr()
			if word == "-s" {
				addr = w.packet.Source
			}
			if !is(within(addr, rule[i+1])) {
				return 0
			}
		case "-p":
			if !is(protocolName(w.packet.Protocol) == rule[i+1]) {
				return 0
			}
		case "--dport":
			low, high, ranged := strings.Cut(rule[i+1], ":")
			if !ranged {
				high = low
			}
			from, _ := strconv.Atoi(low)
			to, _ := strconv.Atoi(high)
			if port := int(w.packet.To.Port()); !is(port >= from && port <= to) {
				return 0
			}
		case "--hashlimit-above", "--connlimit-above": // nothing has been sent before
			return 0
		case "--src-type":
			if !is(w.own) {
				return 0
			}
		case "--ctstate":
			if !is(rule[i+1] == "NEW") {
				return 0
			}
		case "--mark", "--update":
			return 0
		case "--probability":
			chance, _ = strconv.ParseFloat(rule[i+1], 64)
		case "--every":
			every, _ := strconv.ParseFloat(rule[i+1], 64)
			chance = 1 / every
		case "--dst-type":
			if !is(slices.ContainsFunc(nodes(), func(p netip.Prefix) bool { return p.Contains(w.packet.To.Addr()) })) {
				return 0
			}
		case "-o": // of packets to loopback addresses
			if !is(rule[i+1] == "lo" && w.packet.Interface == "") {
				return 0
			}
		case "-i":
			w.t.Fatalf("the walker does not know %v", rule)
		}
		not = word == "!"
	}
	return chance
}

// nodes are the address ranges of the machine in a random cluster.
func nodes() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("fd00:172::/32")}
}

// within reports whether an address matches ADDRESS/BITS or ADDRESS/MASK.
func within(addr netip.Addr, match string) bool {
	if prefix, err := netip.ParsePrefix(match); err == nil {
		return prefix.Contains(addr)
	}
	value, mask, _ := strings.Cut(match, "/")
	v, m, a := netip.MustParseAddr(value).AsSlice(), netip.MustParseAddr(mask).AsSlice(), addr.AsSlice()
	for i := range a {
		if a[i]&m[i] != v[i] {
			return false
		}
	}
	return true
}

// fate is the result of a simulated packet.
func (all tablesOf) fate(t *testing.T, p plan.Packet, own bool) *walker {
	w := &walker{t: t, packet: p, own: own, shares: map[netip.AddrPort]float64{}, masqueraded: map[netip.AddrPort]bool{}}
	w.rules = all[tableNAT]
	first := "PREROUTING"
	if p.Interface == "" {
		first = "OUTPUT"
	}
	if left := w.walk(first, 1); left > 1e-9 {
		w.rules = all[tableFilter]
		for _, chain := range []string{"INPUT", "FORWARD"} { // any of them: the difference does not matter here
			w.walk(chain, 1)
		}
	}
	return w
}

// TestPacketsFareAsPlanned simulates packets in the rules of random plans: each has the result that the plan explains,
// and each endpoint has the share of its weight to within 1 %.
func TestPacketsFareAsPlanned(t *testing.T) {
	for _, many := range []int{12, 150} {
		for seed := range uint64(2) {
			b, doors := fakes(t, ipt.NFT)
			fare(t, clusters.NewRandom(seed, many), b, doors)
		}
	}
}

// TestOldToolsManyFrontends is TestPacketsFareAsPlanned with an iptables that cannot match the bits of addresses by which trees
// branch.
func TestOldToolsManyFrontends(t *testing.T) {
	_, doors := fakes(t, ipt.NFT)
	for _, door := range doors {
		door.UseOldTools()
	}
	fare(t, clusters.NewRandom(0, 150), restarted(t, doors), doors)
}

// TestOldToolsAfterNewOnes replaces iptables by an older one that cannot write what is there: branches. Some of the chains with
// branches are written twice, with their old rules at first, because they refuse connections until others serve them.
func TestOldToolsAfterNewOnes(t *testing.T) {
	b, doors := fakes(t, ipt.NFT)
	c := clusters.NewSized(200, 0)
	sync(t, b, c.Plan())
	for _, door := range doors {
		door.UseOldTools()
	}
	b = restarted(t, doors)
	c.Set(4, 2)
	sync(t, b, c.Plan())
	holds(t, b, c.Plan())
}

// omitting is the door of iptables 1.8.7, which lists rules of newer versions without their ports and marks.
type omitting struct{ *ipttest.Fake }

func (o omitting) Save(ctx context.Context, table string) (string, error) {
	text, err := o.Fake.Save(ctx, table)
	return regexp.MustCompile(` --dport \S+| -m mark --mark \S+`).ReplaceAllString(text, ""), err
}

// TestOldToolsListInPart checks that rules that an older iptables lists only in part are not written like that, not even until
// the new ones are complete.
func TestOldToolsListInPart(t *testing.T) {
	b, doors := fakes(t, ipt.NFT)
	c := clusters.NewSized(200, 2)
	sync(t, b, c.Plan())
	var tables []ipt.Tables
	for _, door := range doors {
		door.UseOldTools()
		door.Refuse(func(input string) error {
			for line := range strings.Lines(input) {
				if strings.HasPrefix(line, "-A KUBE-FORWARD ") && !strings.Contains(line, "--mark") && !strings.Contains(line, "--ctstate") {
					t.Errorf("a rule without its condition is written: %s", line)
				}
			}
			return nil
		})
		tables = append(tables, omitting{door})
	}
	sync(t, newBackend(t, settings(nil), tables...), c.Plan())
	b = restarted(t, doors)
	sync(t, b, c.Plan())
	holds(t, b, c.Plan())
}

// fare syncs plans and simulates packets to each frontend.
func fare(t *testing.T, w *clusters.Random, b *Backend, doors []*ipttest.Fake) {
	t.Helper()
	sources := addrs("10.244.0.8", "10.244.0.14", "10.244.0.9", "172.18.0.77", "192.168.1.1", "fd00:10:244::9", "fd00:172:18::77", "fd00:1::1")
	for range 4 {
		p := w.Step()
		sync(t, b, p)
		for i, door := range doors {
			rules := parsed(t, door.Dump())
			for frontend := range p.Frontends.All() {
				if frontend.Family() != b.families[i].is {
					continue
				}
				to := frontend.Addr
				if frontend.IsNodePort() {
					to = p.Node.NodePortAddrs[i]
				}
				for _, source := range sources {
					if source.Is4() == to.Is4() {
						compare(t, rules, p, plan.Packet{Source: source, Interface: "eth0", To: netip.AddrPortFrom(to, frontend.Port), Protocol: frontend.Protocol})
					}
				}
			}
		}
	}
}

// compare compares the fate of a packet with the plan.
func compare(t *testing.T, rules tablesOf, p *plan.Plan, packet plan.Packet) {
	t.Helper()
	path, got := p.Explain(packet), rules.fate(t, packet, false)
	where := fmt.Sprintf("%s to %s/%s, %s", packet.Source, packet.To, packet.Protocol, path.Why)
	if path.Verdict != plan.Balance {
		if len(got.shares) > 0 || got.verdict != path.Verdict {
			t.Fatalf("%s: want %s, got %s, %v", where, path.Verdict, got.verdict, got.shares)
		}
		return
	}
	if len(got.shares) != len(path.Pool.Endpoints) || got.verdict != plan.Balance {
		t.Fatalf("%s: want %v; got %v, %s", where, path.Pool.Endpoints, got.shares, got.verdict)
	}
	all := 0
	for i := range path.Pool.Endpoints {
		all += path.Pool.Weight(i)
	}
	for i, endpoint := range path.Pool.Endpoints {
		if share := got.shares[endpoint] * float64(all) / float64(path.Pool.Weight(i)); math.Abs(share-1) > 0.01 {
			t.Fatalf("%s: %s has %v of its share", where, endpoint, share)
		}
		if want := path.MasqueradedTo(endpoint); got.masqueraded[endpoint] != want {
			t.Fatalf("%s: masqueraded for %s: %v, want %v", where, endpoint, !want, want)
		}
	}
}

// TestShares computes the share of each of 2 to 1,000 endpoints.
func TestShares(t *testing.T) {
	w := newWriter(cluster.IPv4, &plan.Node{}, testOptions, capabilities{})
	for n := 1; n <= 1000; n++ {
		pool := &plan.Pool{}
		for i := range n {
			pool.Endpoints = append(pool.Endpoints, netip.AddrPortFrom(clusters.AddrAt(10<<24, i), 80))
		}
		key := portKey{"ns/a", cluster.TCP}
		packet := plan.Packet{To: netip.MustParseAddrPort("10.96.0.1:80"), Protocol: cluster.TCP}
		rules := map[string][][]string{}
		for _, l := range (&portWriter{writer: w, key: key}).poolChain(nil, &poolChain{pool: pool}) {
			words, err := ipt.Words(l.Text())
			if err != nil {
				t.Fatal(err)
			}
			rules["x"] = append(rules["x"], words)
		}
		walk := &walker{t: t, rules: rules, packet: packet, shares: map[netip.AddrPort]float64{}, masqueraded: map[netip.AddrPort]bool{}}
		if left := walk.walk("x", 1); left > 1e-9 || len(walk.shares) != n {
			t.Fatalf("%d endpoints: %d get connections, %v get none", n, len(walk.shares), left)
		}
		for endpoint, share := range walk.shares {
			if off := math.Abs(share*float64(n) - 1); off > 0.0001 {
				t.Errorf("%d endpoints: %s is off by %v", n, endpoint, off)
			}
		}
	}
}

// TestEveryStepIsRight simulates packets after each transaction of a patch: a frontend that both plans serve is always
// served, by endpoints of either; one that both refuse is always refused; and one that only one of them serves is never
// passed, unless its address is no longer one of node ports. So it is after restarts.
func TestEveryStepIsRight(t *testing.T) {
	for many, seeds := range map[int]uint64{10: 3, 130: 1} {
		for seed := range seeds {
			w := clusters.NewRandom(seed, many)
			fake := ipttest.New(ipt.IPv4, ipt.NFT)
			door := &hooked{Tables: fake}
			b := newBackend(t, settings(nil), door)
			b.families[0].renderer.can.chunk = 2 // as in a large cluster
			before := w.Step()
			sync(t, b, before)
			for step := range 6 {
				if step%2 == 1 {
					b = newBackend(t, settings(nil), door)
					b.families[0].renderer.can.chunk = 2
				}
				after := w.Step()
				door.around = func(operation, _ string, do func() error) error {
					err := do()
					if operation == "Write" || operation == "Insert" {
						rightBetween(t, parsed(t, fake.Dump()), before, after)
					}
					return err
				}
				sync(t, b, after)
				before = after
			}
		}
	}
}

// rightBetween checks the packets after one transaction.
func rightBetween(t *testing.T, rules tablesOf, before, after *plan.Plan) {
	t.Helper()
	source := netip.MustParseAddr("172.18.0.77")
	for frontend := range before.Frontends.All() {
		if _, stays := after.Frontends.Get(frontend); !stays || frontend.Family() != cluster.IPv4 {
			continue
		}
		to := frontend.Addr
		if frontend.IsNodePort() {
			to = before.Node.NodePortAddrs[0]
		}
		packet := plan.Packet{Source: source, Interface: "eth0", To: netip.AddrPortFrom(to, frontend.Port), Protocol: frontend.Protocol}
		was, is, got := before.Explain(packet), after.Explain(packet), rules.fate(t, packet, false)
		total := 0.0
		for endpoint, share := range got.shares {
			total += share
			// For a moment, the policy of one plan, or the Service of one plan if two claim the frontend, may select
			// among the endpoints of the other plan.
			theirs := func(p *plan.Plan) bool { return has(p, was.Route, endpoint) || has(p, is.Route, endpoint) }
			if !theirs(before) && !theirs(after) {
				t.Fatalf("%s is sent to %s, which is its in neither plan", frontend, endpoint)
			}
		}
		served, verdict := math.Abs(total-1) < 0.01, got.verdict
		if !served && verdict == plan.Balance {
			verdict = plan.Pass // no rule matches
		}
		switch {
		case was.Verdict == plan.Balance && is.Verdict == plan.Balance && !served:
			t.Fatalf("%s is served before and after, and between %v", frontend, got.shares)
		case was.Verdict != plan.Balance && is.Verdict != plan.Balance && verdict != was.Verdict && verdict != is.Verdict:
			t.Fatalf("%s is refused before and after, and between %s, %v", frontend, verdict, got.shares)
		case verdict == plan.Pass && was.Verdict != plan.Pass && is.Verdict != plan.Pass:
			t.Fatalf("%s is left alone on the way from %s to %s", frontend, was.Verdict, is.Verdict)
		}
	}
}

// has reports whether an endpoint is in any pool of a route's port. There is no route if the node port's address is no longer served.
func has(p *plan.Plan, r *plan.Route, endpoint netip.AddrPort) bool {
	if r == nil {
		return false
	}
	service, ok := p.Services.Get(r.Service)
	return ok && slices.ContainsFunc(service.Routes, func(o *plan.Route) bool {
		return keyOf(o) == keyOf(r) && (slices.Contains(o.Pool.Endpoints, endpoint) ||
			o.ShortCut != nil && slices.Contains(o.ShortCut.Endpoints, endpoint))
	})
}

// TestAffinity checks that the client lists are named after endpoints, that every connection updates them, and that
// they are checked before an endpoint is picked at random.
func TestAffinity(t *testing.T) {
	w := newWriter(cluster.IPv6, &plan.Node{}, testOptions, capabilities{})
	key := portKey{"ns/a:http", cluster.UDP}
	pool := &plan.Pool{Endpoints: []netip.AddrPort{netip.MustParseAddrPort("[fd00::1]:53"), netip.MustParseAddrPort("[fd00::2]:53")}}
	var got []string
	for _, l := range (&portWriter{writer: w, key: key, affinity: 3 * time.Hour}).poolChain(nil, &poolChain{pool: pool}) {
		got = append(got, l.Text())
	}
	first, second := key.endpoint(pool.Endpoints[0]), key.endpoint(pool.Endpoints[1])
	const mask = " --mask ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff --rsource -j DNAT --to-destination "
	want := []string{
		`-p udp -m comment --comment "ns/a:http" -m recent --update --seconds 10800 --reap --name ` + first + mask + "[fd00::1]:53",
		"-p udp -m recent --update --seconds 10800 --reap --name " + second + mask + "[fd00::2]:53",
		"-p udp -m statistic --mode random --probability 0.50000000000 -m recent --set --name " + first + mask + "[fd00::1]:53",
		"-p udp -m recent --set --name " + second + mask + "[fd00::2]:53",
	}
	if !slices.Equal(got, want) || !strings.HasPrefix(first, "KUBE-SEP-") || len(first) != 25 || first == second {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestNames checks chain names, which other programs compute, with published examples.
func TestNames(t *testing.T) {
	// The API server and DNS of any cluster, from public issues of Kubernetes.
	for name, want := range map[portKey]string{
		{"default/kubernetes:https", cluster.TCP}:     "KUBE-SVC-NPX46M4PTMTKRN6Y",
		{"kube-system/kube-dns:dns", cluster.UDP}:     "KUBE-SVC-TCOU7JCQXEZGVUNU",
		{"kube-system/kube-dns:dns-tcp", cluster.TCP}: "KUBE-SVC-ERIFXISQEP7F7OF4",
	} {
		if got := name.chain(prefixCluster); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// TestHostileNames checks that no name can end a comment, and no interface name a rule.
func TestHostileNames(t *testing.T) {
	for _, name := range []string{"a\" -j ACCEPT\n-A INPUT -j ACCEPT", strings.Repeat("x", 500), "a\\", "ü/µ", "$(reboot)", "a\tb"} {
		words, err := ipt.Words(ipt.Rule{Matches: []ipt.Match{comment(name)}, Target: ipt.Return}.Text())
		if err != nil || len(words) != 6 || words[5] != "RETURN" || len(words[3]) > maxComment {
			t.Errorf("%q becomes %q, %v", name, words, err)
		}
		w := newWriter(cluster.IPv4, &plan.Node{LocalTraffic: plan.LocalTraffic{Interface: name}}, testOptions, capabilities{})
		head := w.localTraffic(true, netip.Addr{})
		if words, err := ipt.Words(ipt.Rule{Matches: head}.Text()); err != nil || len(words) != 2 {
			t.Errorf("%q becomes %q, %v", name, words, err)
		}
	}
}
