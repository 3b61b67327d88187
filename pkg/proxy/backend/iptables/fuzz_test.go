package iptables

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
	"github.com/seed-11a05479/kube-proxy/test/hostile"
	"github.com/seed-11a05479/kube-proxy/test/laws"
)

// FuzzDiff checks diff between any two plans.
func FuzzDiff(f *testing.F) {
	f.Add(uint64(1), uint64(2), uint8(3), uint8(5), false)
	f.Add(uint64(7), uint64(7), uint8(0), uint8(30), true)
	f.Fuzz(func(t *testing.T, first, second uint64, steps, more uint8, legacy bool) {
		variant := ipt.NFT
		if legacy {
			variant = ipt.Legacy
		}
		laws.BetweenPlans(t, law(variant), laws.Walk{Seed: first, Steps: steps}, laws.Walk{Seed: second, Steps: more})
	})
}

// FuzzParse reads arbitrary text as the output of iptables-save. Everything that it parses must be ours, and must be
// parsed the same after it is formatted.
func FuzzParse(f *testing.F) {
	b, doors := fakes(f, ipt.NFT)
	b.Sync(f.Context(), clusters.NewRandom(3, 12).Step())
	for _, table := range tables() {
		text, err := doors[0].Save(f.Context(), table)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add("*nat\n:KUBE-SVC-X [0:0]\n[3:4] -A KUBE-SVC-X -m comment --comment \"a\\\" b\" -j KUBE-SEP-Y\n-A PREROUTING -j KUBE-SERVICES\nCOMMIT\n")
	f.Fuzz(func(t *testing.T, text string) {
		readFrom := func(text string) *ruleset {
			s := newSeen(nil, &ruleset{})
			for name, rules := range parse(text) {
				s.add(chainName{tableNAT, name}, rules)
			}
			return s.ruleset(true)
		}
		read := readFrom(text)
		var writes []write
		for name, chain := range read.chains.All() {
			if !name.ours() || name.table != tableNAT {
				t.Fatalf("%v is not ours", name)
			}
			writes = append(writes, write{name: name.name, body: chain.body})
		}
		slices.SortFunc(writes, func(a, b write) int { return strings.Compare(a.name, b.name) })
		formatted := transaction(tableNAT, writes, nil)
		for _, h := range read.hooks {
			formatted.Inserted = append(formatted.Inserted, ipt.ChainRule{Chain: h.in.name, Rule: h.rule})
		}
		again := readFrom(strings.ReplaceAll(formatted.Text(), "\n-I ", "\n-A "))
		if one, other := rows(read), rows(again); !slices.Equal(one, other) {
			t.Fatalf("%q\nparsed as\n%q, formatted as\n%q", text, one, other)
		}
	})
}

// rows returns the chains with their rules, sorted by name, and the hooks.
func rows(r *ruleset) []string {
	var all []string
	for name, chain := range r.chains.All() {
		row := ":" + name.name
		for _, l := range chain.rules() {
			row += "\n" + l.Text()
		}
		all = append(all, row)
	}
	slices.Sort(all)
	for _, h := range r.hooks {
		all = append(all, h.in.name+" "+h.rule.Text())
	}
	return all
}

// FuzzNames programs a Service whose names are arbitrary text. The tables must be those of a Service with harmless names, apart from
// the comments and the names of chains: nothing of the text may be taken for a line, an option or a rule.
func FuzzNames(f *testing.F) {
	for _, text := range hostile.Strings() {
		f.Add(text, text)
	}
	named := func(namespace, port string) *plan.Plan {
		name := cluster.ServiceName{Namespace: namespace, Name: namespace}
		s := &cluster.Service{Name: name, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("fd00::1")},
			External:       &cluster.External{LoadBalancerIPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, SourceRanges: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}},
			ExternalPolicy: cluster.PolicyLocal, Affinity: time.Hour, HealthCheckNodePort: 30000,
			Ports: []cluster.ServicePort{{Name: port, Protocol: cluster.TCP, Port: 80, NodePort: 30080}, {Name: port + "x", Protocol: cluster.UDP, Port: 53}},
			Slices: []*cluster.EndpointSlice{{Name: "s", Ports: []cluster.EndpointPort{{Name: port, Protocol: cluster.TCP, Port: 8080}},
				Endpoints: []cluster.Endpoint{{Addr: netip.MustParseAddr("10.0.0.1"), Conditions: cluster.Ready | cluster.Local}}}}}
		services := cluster.Map[cluster.ServiceName, *cluster.Service]{}.Set(name, s)
		return plan.Compute(&cluster.Snapshot{Services: services, Node: &cluster.Node{Name: "n"}}, &plan.Options{}, nil)
	}
	program := func(t *testing.T, p *plan.Plan) (chains, rules int) {
		b, _ := fakes(t, ipt.NFT)
		sync(t, b, p)
		holds(t, b, p)
		for _, family := range b.families {
			have, err := read(t.Context(), family.door, &ruleset{}, true)
			if err != nil {
				t.Fatal(err)
			}
			for _, chain := range have.chains.All() {
				chains, rules = chains+1, rules+chain.len()
			}
		}
		return chains, rules
	}
	f.Fuzz(func(t *testing.T, namespace, port string) {
		wantChains, wantRules := program(t, named("a", "b"))
		if chains, rules := program(t, named(namespace, port)); chains != wantChains || rules != wantRules {
			t.Fatalf("%d chains and %d rules, want %d and %d", chains, rules, wantChains, wantRules)
		}
	})
}
