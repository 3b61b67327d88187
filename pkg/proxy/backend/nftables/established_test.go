package nftables

import (
	"testing"

	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// TestEstablishedPacketsMeetOneRule checks what a packet of an established connection meets in each hook: nothing in
// prerouting and postrouting, where nat chains see only first packets, and one rule in the others. A packet for the node itself is
// before that compared with the loopback addresses, in IPv4.
func TestEstablishedPacketsMeetOneRule(t *testing.T) {
	b, _ := fakes()
	for _, f := range b.families {
		node := &plan.Node{}
		hooks := map[knftables.BaseChainHook]string{}
		for _, c := range newWriter(f.schema, node, testOptions).skeleton().chains {
			if c.kind != knftables.FilterType {
				continue
			}
			if other, taken := hooks[c.hook]; taken || c.hook == knftables.PreroutingHook || c.hook == knftables.PostroutingHook {
				t.Errorf("%s: hook %s has the filter chain %s, and %q", f.schema.family, c.hook, c.name, other)
			}
			hooks[c.hook] = c.name
			first := c.rules[0]
			if c.hook == knftables.InputHook && first == `ip daddr 127.0.0.0/8 iif != "lo" jump received-for-loopback` {
				first = c.rules[1]
			}
			if want := "ct state established,related,untracked accept"; first != want {
				t.Errorf("%s: chain %s begins with %q, want %q", f.schema.family, c.name, first, want)
			}
		}
		if len(hooks) != 3 {
			t.Errorf("%s: filter chains in %v, want input, forward and output", f.schema.family, hooks)
		}
	}
}
