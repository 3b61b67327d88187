package nft

import (
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/knftables"
)

// ruleCases are rules with every statement and operand.
func ruleCases() map[string]Rule {
	return map[string]Rule{
		"pick":     {DNAT{Concat{DestinationAddress, Protocol, DestinationPort, RandomNumber(17)}, "endpoints"}},
		"sticky":   {DNAT{Concat{SourceAddress, DestinationAddress, Protocol, DestinationPort}, "affinity"}},
		"inside":   {Lookup{Concat{SourceAddress}, "pods"}, Goto("target")},
		"marked":   {Lookup{Concat{SourceAddress}, "pods"}, SetMark(0x4000)},
		"hairpin":  {Lookup{Concat{SourceAddress, DestinationAddress, Protocol, DestinationPort}, "hairpins"}, Goto("target")},
		"goto":     {Goto("target")},
		"mark":     {SetMark(0x80004000)},
		"member":   {Lookup{Concat{DestinationAddress, DestinationPort, Constant(0xffffffff), Constant(0)}, "members"}, Goto("target")},
		"recall":   {DNAT{Concat{SourceAddress, Protocol, Constant(7), Constant(0x80000000)}, "clients"}},
		"remember": {remember(3 * time.Hour)},
		"briefly":  {Lookup{Concat{DestinationAddress, DestinationPort, Constant(7), Constant(8)}, "members"}, remember(time.Second)},
		"whole":    {Update{Map: "whole", Key: Concat{SourceAddress}, Value: Concat{DestinationAddress, DestinationPort}, Timeout: time.Hour}, Return{}},
		"count":    {Lookup{Concat{SourceAddress}, "pods"}, Count("refused")},
		"long":     {remember(86399 * time.Second)},
	}
}

// remember records which endpoint a client was sent to.
func remember(timeout time.Duration) Update {
	return Update{Map: "clients", Timeout: timeout,
		Key:   Concat{SourceAddress, Protocol, Constant(7), Constant(0x80000000)},
		Value: Concat{DestinationAddress, DestinationPort}}
}

// tooWide reports whether nft 1.0.6 cannot load a rule: see Update.
func tooWide(rule Rule, family knftables.Family) bool {
	return slices.ContainsFunc(rule, func(s Statement) bool {
		u, ok := s.(Update)
		return ok && max(u.Key.width(family), u.Value.width(family)) > 16
	})
}

// ruleWorld declares the objects that the rules refer to.
func ruleWorld(family knftables.Family) func(tx *Transaction) {
	ip := string(family)
	return func(tx *Transaction) {
		tx.Add(&knftables.Table{})
		tx.Add(&knftables.Map{Name: "endpoints", TypeOf: strings.ReplaceAll(endpointsType, "ip", ip)})
		tx.Add(&knftables.Map{Name: "affinity", TypeOf: ip + " saddr . " + ip + " daddr . meta l4proto . th dport : " + ip + " daddr . th dport"})
		tx.Add(&knftables.Set{Name: "pods", TypeOf: ip + " saddr", Flags: []knftables.SetFlag{knftables.IntervalFlag}})
		tx.Add(&knftables.Set{Name: "hairpins", TypeOf: ip + " saddr . " + ip + " daddr . meta l4proto . th dport"})
		tx.Add(&knftables.Set{Name: "members", TypeOf: ip + " daddr . th dport . numgen random mod 2 . numgen random mod 2"})
		tx.Add(&knftables.Map{Name: "clients", Size: knftables.PtrTo[uint64](4),
			TypeOf: ip + " saddr . meta l4proto . numgen random mod 2 . numgen random mod 2 : " + ip + " daddr . th dport",
			Flags:  []knftables.SetFlag{knftables.DynamicFlag, knftables.TimeoutFlag}})
		addr := map[knftables.Family]string{knftables.IPv4Family: "ipv4_addr", knftables.IPv6Family: "ipv6_addr"}[family]
		tx.Add(&knftables.Map{Name: "whole", Size: knftables.PtrTo[uint64](4), Type: addr + " : " + addr + " . inet_service",
			Flags: []knftables.SetFlag{knftables.DynamicFlag, knftables.TimeoutFlag}})
		tx.Add(&knftables.Counter{Name: "refused"})
		tx.Add(&knftables.Chain{Name: "target"})
	}
}

// TestKernelRulesAsText writes each rule as text and as a batch: nft must list the same, and the fingerprints must be equal.
func TestKernelRulesAsText(t *testing.T) {
	for _, family := range []knftables.Family{knftables.IPv4Family, knftables.IPv6Family} {
		type outcome struct{ list, fingerprint string }
		written := map[string]outcome{}
		for _, way := range []string{"text", "batch"} {
			for name, rule := range ruleCases() {
				if way == "text" && tooWide(rule, family) {
					continue
				}
				t.Run(string(family)+"/"+name+"/"+way, func(t *testing.T) {
					table := openKernel(t, family)
					// In one transaction with the declarations, because nft 1.0.6 cannot add all of these rules later.
					err := text(func(tx *Transaction) {
						ruleWorld(family)(tx)
						tx.Add(&knftables.Chain{Name: "subject"})
						if way == "text" {
							tx.Add(&knftables.Rule{Chain: "subject", Rule: rule.Text(family)})
						}
					}).run(t.Context(), table)
					if err == nil && way == "batch" {
						err = batch(func(b *Batch) { b.AddRule("subject", rule) }).run(t.Context(), table)
					}
					if err != nil {
						t.Fatal(err)
					}
					fingerprint, _, err := table.Fingerprint(t.Context(), "")
					if err != nil {
						t.Fatal(err)
					}
					got := outcome{nft(t, "list", "ruleset"), fingerprint}
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
