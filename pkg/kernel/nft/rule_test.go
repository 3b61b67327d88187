package nft_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft/nfttest"
)

// ruleCases are rules with every statement and operand.
func ruleCases() map[string]nft.Rule {
	return map[string]nft.Rule{
		"pick":     {nft.DNAT{nft.Concat{nft.DestinationAddress, nft.Protocol, nft.DestinationPort, nft.RandomNumber(17)}, "endpoints"}},
		"next":     {nft.DNAT{nft.Concat{nft.DestinationAddress, nft.Protocol, nft.DestinationPort, nft.NextNumber(17)}, "endpoints"}},
		"source":   {nft.DNAT{nft.Concat{nft.DestinationAddress, nft.Protocol, nft.DestinationPort, nft.SourceHash(8192)}, "endpoints"}},
		"flow":     {nft.DNAT{nft.Concat{nft.DestinationAddress, nft.Protocol, nft.DestinationPort, nft.FlowHash(8192)}, "endpoints"}},
		"npflow":   {nft.DNAT{nft.Concat{nft.Protocol, nft.DestinationPort, nft.FlowHash(8192)}, "ports"}},
		"sticky":   {nft.DNAT{nft.Concat{nft.SourceAddress, nft.DestinationAddress, nft.Protocol, nft.DestinationPort}, "affinity"}},
		"inside":   {nft.Lookup{nft.Concat{nft.SourceAddress}, "pods"}, nft.Goto("target")},
		"marked":   {nft.Lookup{nft.Concat{nft.SourceAddress}, "pods"}, nft.SetMark(0x4000)},
		"hairpin":  {nft.Lookup{nft.Concat{nft.SourceAddress, nft.DestinationAddress, nft.Protocol, nft.DestinationPort}, "hairpins"}, nft.Goto("target")},
		"jump":     {nft.Jump("target")},
		"goto":     {nft.Goto("target")},
		"mark":     {nft.SetMark(0x80004000)},
		"member":   {nft.Lookup{nft.Concat{nft.DestinationAddress, nft.DestinationPort, nft.Constant(0xffffffff), nft.Constant(0)}, "members"}, nft.Goto("target")},
		"recall":   {nft.DNAT{nft.Concat{nft.SourceAddress, nft.Protocol, nft.Constant(7), nft.Constant(0x80000000)}, "clients"}},
		"remember": {remember(3 * time.Hour)},
		"briefly":  {nft.Lookup{nft.Concat{nft.DestinationAddress, nft.DestinationPort, nft.Constant(7), nft.Constant(8)}, "members"}, remember(time.Second)},
		"whole":    {nft.Update{Map: "whole", Key: nft.Concat{nft.SourceAddress}, Value: nft.Concat{nft.DestinationAddress, nft.DestinationPort}, Timeout: time.Hour}, nft.Return{}},
		"count":    {nft.Lookup{nft.Concat{nft.SourceAddress}, "pods"}, nft.Count("refused")},
		"long":     {remember(86399 * time.Second)},
	}
}

// remember records which endpoint a client was sent to.
func remember(timeout time.Duration) nft.Update {
	return nft.Update{Map: "clients", Timeout: timeout,
		Key:   nft.Concat{nft.SourceAddress, nft.Protocol, nft.Constant(7), nft.Constant(0x80000000)},
		Value: nft.Concat{nft.DestinationAddress, nft.DestinationPort}}
}

// tooWide reports whether nft 1.0.6 cannot load a rule: see Update.
func tooWide(rule nft.Rule, family nf.Family) bool {
	return slices.ContainsFunc(rule, func(s nft.Statement) bool {
		u, ok := s.(nft.Update)
		return ok && max(u.Key.Width(family), u.Value.Width(family)) > 16
	})
}

// ruleWorld declares the objects that the rules refer to.
func ruleWorld(family nf.Family) func(tx *nft.Transaction) {
	ip := family.String()
	return func(tx *nft.Transaction) {
		tx.Add(&knftables.Table{})
		tx.Add(&knftables.Map{Name: "endpoints", TypeOf: strings.ReplaceAll(endpointsType, "ip", ip)})
		tx.Add(&knftables.Map{Name: "ports", TypeOf: "meta l4proto . th dport . numgen random mod 2 : " + ip + " daddr . th dport"})
		tx.Add(&knftables.Map{Name: "affinity", TypeOf: ip + " saddr . " + ip + " daddr . meta l4proto . th dport : " + ip + " daddr . th dport"})
		tx.Add(&knftables.Set{Name: "pods", TypeOf: ip + " saddr", Flags: []knftables.SetFlag{knftables.IntervalFlag}})
		tx.Add(&knftables.Set{Name: "hairpins", TypeOf: ip + " saddr . " + ip + " daddr . meta l4proto . th dport"})
		tx.Add(&knftables.Set{Name: "members", TypeOf: ip + " daddr . th dport . numgen random mod 2 . numgen random mod 2"})
		tx.Add(&knftables.Map{Name: "clients", Size: knftables.PtrTo[uint64](4),
			TypeOf: ip + " saddr . meta l4proto . numgen random mod 2 . numgen random mod 2 : " + ip + " daddr . th dport",
			Flags:  []knftables.SetFlag{knftables.DynamicFlag, knftables.TimeoutFlag}})
		addr := map[nf.Family]string{nf.IPv4: "ipv4_addr", nf.IPv6: "ipv6_addr"}[family]
		tx.Add(&knftables.Map{Name: "whole", Size: knftables.PtrTo[uint64](4), Type: addr + " : " + addr + " . inet_service",
			Flags: []knftables.SetFlag{knftables.DynamicFlag, knftables.TimeoutFlag}})
		tx.Add(&knftables.Counter{Name: "refused"})
		tx.Add(&knftables.Chain{Name: "target"})
	}
}

// TestKernelRulesAsText writes each rule as text and as a batch: nft must list the same, and the fingerprints must be equal.
func TestKernelRulesAsText(t *testing.T) {
	for _, family := range []nf.Family{nf.IPv4, nf.IPv6} {
		type outcome struct{ list, fingerprint string }
		written := map[string]outcome{}
		for _, way := range []string{"text", "batch"} {
			for name, rule := range ruleCases() {
				if way == "text" && tooWide(rule, family) {
					continue
				}
				t.Run(family.String()+"/"+name+"/"+way, func(t *testing.T) {
					table := openKernel(t, family)
					// In one transaction with the declarations, because nft 1.0.6 cannot add all of these rules later.
					err := text(func(tx *nft.Transaction) {
						ruleWorld(family)(tx)
						tx.Add(&knftables.Chain{Name: "subject"})
						if way == "text" {
							tx.Add(&knftables.Rule{Chain: "subject", Rule: rule.Text(family)})
						}
					}).run(t.Context(), table)
					if err == nil && way == "batch" {
						err = batch(func(b *nf.Batch) { nft.AddRule(b, "subject", rule) }).run(t.Context(), table)
					}
					if err != nil {
						t.Fatal(err)
					}
					fingerprint, _, err := table.Fingerprint(t.Context(), "")
					if err != nil {
						t.Fatal(err)
					}
					got := outcome{nftProgram(t, "list", "ruleset"), fingerprint}
					if !strings.Contains(got.list, rule.Text(family)) {
						t.Errorf("nft does not list the rule %q as it was written:\n%s", rule.Text(family), got.list)
					}
					if want, ok := written[name]; ok && got != want {
						t.Errorf("as text:\n%s\nas a batch:\n%s", want, got)
					}
					written[name] = got
				})
			}
		}
	}
}

// TestFakeListsRules writes each rule as a batch to the fake, which must list it as nft does.
func TestFakeListsRules(t *testing.T) {
	for family, prefixes := range map[nf.Family][]string{nf.IPv4: {"10.0.0.0/8", "10.96.0.0/12", "10.0.0.1/32"}, nf.IPv6: {"fd00::/16", "fd00::/12"}} {
		cases := ruleCases()
		cases["local"] = nft.Rule{nft.SourceIsLocal{}, nft.InputInterface{Name: "cbr0"}, nft.InputInterface{Name: "cali*", Not: true}, nft.Return{}}
		for _, prefix := range prefixes {
			in := nft.SourceIn{Prefix: netip.MustParsePrefix(prefix)}
			cases[prefix] = nft.Rule{in, nft.SourceIn{Prefix: in.Prefix, Not: true}, nft.SetMark(1)}
		}
		fake := nfttest.New(family, testTable)
		mustRun(t, fake, text(ruleWorld(family)))
		for name, rule := range cases {
			mustRun(t, fake, batch(func(b *nf.Batch) {
				b.AddChain(nf.Chain{Name: name})
				nft.AddRule(b, name, rule)
			}))
			rules, err := fake.Rules(t.Context())
			if want := rule.Text(family); err != nil || len(rules[name]) != 1 || rules[name][0] != want {
				t.Errorf("%q is listed as %q, %v", want, rules[name], err)
			}
		}
	}
}
