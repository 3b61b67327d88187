package iptables

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt/ipttest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// meddled is a door at which another program writes once: before the call with the number at, -1 for none.
type meddled struct {
	*hooked
	calls, at int
	// write makes the change; refused is its error, for example because there is no such chain.
	write   func() error
	refused error
}

func newMeddled(door ipt.Tables, old bool, write func() error) *meddled {
	m := &meddled{hooked: &hooked{Tables: door, old: old}, write: write}
	m.around = func(_, _ string, do func() error) error { m.called(); return do() }
	return m
}

func (m *meddled) meddle() { m.refused = m.write() }

func (m *meddled) called() {
	if m.calls == m.at {
		m.meddle()
	}
	m.calls++
}

// programs runs a test for the programs of each variant of iptables, and for old ones.
func programs(t *testing.T, test func(t *testing.T, variant ipt.Variant, old bool)) {
	t.Run("nft", func(t *testing.T) { test(t, ipt.NFT, false) })
	t.Run("nft before 1.8.9", func(t *testing.T) { test(t, ipt.NFT, true) })
	t.Run("legacy", func(t *testing.T) { test(t, ipt.Legacy, false) })
}

// changes are what a Sync programs while another program may write.
var changes = map[string]func(c *clusters.Sized){
	"a change":     func(c *clusters.Sized) { c.Set(4, -3) },
	"nothing":      func(*clusters.Sized) {},
	"a removal":    func(c *clusters.Sized) { c.Services.Delete(clusters.NameAt(4)) },
	"a new one":    func(c *clusters.Sized) { c.Set(5, 2) },
	"many changes": func(c *clusters.Sized) { c.Set(1, 1); c.Set(2, -1); c.Set(3, 0); c.Set(4, 7) },
}

// preludes are what comes before that Sync.
var preludes = map[string]func(t *testing.T, b *Backend, door *meddled) *Backend{
	"running":    func(_ *testing.T, b *Backend, _ *meddled) *Backend { return b },
	"restarting": func(t *testing.T, _ *Backend, door *meddled) *Backend { return newBackend(t, settings(nil), door) },
	"repairing": func(t *testing.T, b *Backend, door *meddled) *Backend {
		if door.meddle(); door.refused == nil {
			check(t, b, 1)
		}
		return b
	},
}

// meddlings are what another program writes, to the Service that changes and to other chains.
func meddlings() map[string]string {
	changing, other := portKey{"default/service-4", cluster.TCP}.chain(prefixCluster), portKey{"default/service-0", cluster.TCP}.chain(prefixCluster)
	return map[string]string{
		"empties the Service that changes":  "*nat\n-F " + changing + "\nCOMMIT\n",
		"adds to the Service that changes":  "*nat\n-A " + changing + " -j RETURN\nCOMMIT\n",
		"replaces the Service that changes": "*nat\n-F " + changing + strings.Repeat("\n-A "+changing+" -j RETURN", 4) + "\nCOMMIT\n",
		"empties a Service that stays":      "*nat\n-F " + other + "\nCOMMIT\n",
		"empties what finds Services":       "*nat\n-F KUBE-SERVICES\nCOMMIT\n",
		"refuses everything":                "*filter\n-A KUBE-SERVICES -j DROP\nCOMMIT\n",
		"removes a jump":                    "*nat\n-F PREROUTING\nCOMMIT\n",
		"returns before our rules":          "*nat\n-I KUBE-SERVICES -j RETURN\nCOMMIT\n",
	}
}

// amidSync has another program write before each call of the door in a Sync, in a new world for each, and checks that Check and
// Sync repair it.
func amidSync(t *testing.T, prelude, change string, world func(t *testing.T) *meddled) {
	t.Helper()
	for at := 0; ; at++ {
		door := world(t)
		door.at = -1
		c := clusters.NewSized(5, 3)
		b := newBackend(t, settings(nil), door)
		sync(t, b, c.Plan())
		check(t, b, 0)
		b = preludes[prelude](t, b, door)
		changes[change](c)
		door.calls, door.at = 0, at
		sync(t, b, c.Plan())
		if door.calls <= at {
			if at == 0 {
				t.Fatal("the Sync does nothing")
			}
			return
		}
		door.at = -1
		func() {
			defer func() {
				if t.Failed() {
					t.Logf("the other program wrote before call %d, with error %v", at, door.refused)
				}
			}()
			repaired(t, b, c.Plan())
		}()
	}
}

// TestTamperingAtAnyTime has another program write at any moment of a Sync. What it wrote is repaired, and never taken for
// ours.
func TestTamperingAtAnyTime(t *testing.T) {
	programs(t, func(t *testing.T, variant ipt.Variant, old bool) {
		for prelude := range preludes {
			for change := range changes {
				if prelude != "running" && change != "a change" && change != "nothing" {
					continue
				}
				for what, input := range meddlings() {
					t.Run(fmt.Sprintf("%s, %s, %s", prelude, change, what), func(t *testing.T) {
						amidSync(t, prelude, change, func(*testing.T) *meddled {
							door := ipttest.New(ipt.IPv4, variant)
							if old {
								door.UseOldTools()
							}
							return newMeddled(door, false, func() error { return door.WriteExternally(input) })
						})
					})
				}
			}
		}
	})
}
