package nftables

import (
	"testing"

	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// TestEstablishedPacketsMeetOneRule checks what a packet of an established connection meets in each hook: nothing in
// prerouting and postrouting, where nat chains see only first packets, and one rule in the others.
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
			if want := "ct state established,related,untracked accept"; c.rules[0] != want {
				t.Errorf("%s: chain %s begins with %q, want %q", f.schema.family, c.name, c.rules[0], want)
			}
		}
		if len(hooks) != 3 {
			t.Errorf("%s: filter chains in %v, want input, forward and output", f.schema.family, hooks)
		}
	}
}
