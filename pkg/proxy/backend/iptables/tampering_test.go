package iptables

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt/ipttest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// TestTamperingBeforeLargeRepair has another program empty one table after the other, as firewalld does, with a check and
// a repair of many chains in between: the second table is repaired, too.
func TestTamperingBeforeLargeRepair(t *testing.T) {
	variants(t, func(t *testing.T, variant ipt.Variant) {
		b, door := oneFake(t, variant)
		p := clusters.NewSized(2*maxListed, 3).Plan()
		sync(t, b, p)
		check(t, b, 0)
		var nat strings.Builder
		for number := range 2 * maxListed {
			fmt.Fprintf(&nat, "-F %s\n", portKey{fmt.Sprint("default/service-", number), cluster.TCP}.chain(prefixCluster))
		}
		tamper(t, door, "*nat\n-F PREROUTING\n"+nat.String()+"COMMIT\n")
		check(t, b, 1)
		tamper(t, door, "*filter\n-F INPUT\n-F FORWARD\n-F KUBE-FORWARD\nCOMMIT\n")
		sync(t, b, p)
		repairs(t, b, p)
	})
}

// repairs checks that one external change is found and repaired.
func repairs(t *testing.T, b *Backend, p *plan.Plan) {
	t.Helper()
	check(t, b, 1)
	sync(t, b, p)
	holds(t, b, p)
	check(t, b, 0)
}

// repaired checks and syncs until nothing is found, and then that the tables hold the plan.
func repaired(t *testing.T, b *Backend, p *plan.Plan) {
	t.Helper()
	for range 4 {
		if _, err := b.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		sync(t, b, p)
	}
	holds(t, b, p)
	check(t, b, 0)
}

// TestTamperingUnseen has another program empty a chain that is not written, before or after a sync after which the rules cannot be read.
func TestTamperingUnseen(t *testing.T) {
	variants(t, func(t *testing.T, variant ipt.Variant) {
		for _, before := range []bool{true, false} {
			const services = 2 * maxListed
			door := &hooked{Tables: ipttest.New(ipt.IPv4, variant)}
			b := newBackend(t, settings(nil), door)
			c := clusters.NewSized(services, 3)
			sync(t, b, c.Plan())
			check(t, b, 0)
			flush := func() {
				chain := portKey{"default/service-1", cluster.TCP}.chain(prefixCluster)
				tamper(t, fakeOf(door), "*nat\n-F PREROUTING\n-F "+chain+"\nCOMMIT\n")
			}
			if before {
				flush()
			}
			door.once(func() error {
				if !before {
					flush()
				}
				return ipt.ErrBusy
			}, "Save", "Compare")
			for i := range services {
				if i == 4 || variant == ipt.Legacy && i != 1 {
					c.Set(i, -3)
				}
			}
			sync(t, b, c.Plan())
			repaired(t, b, c.Plan())
			if door.around != nil {
				t.Fatal("nothing was read")
			}
		}
	})
}

// TestTamperingDuringStart has another program empty a chain, or remove the jumps, while the first rules are written, after that
// chain or these jumps; or while a restart reads and writes another chain.
func TestTamperingDuringStart(t *testing.T) {
	for name, door := range map[string]func() *ipttest.Fake{
		"nft":    func() *ipttest.Fake { return ipttest.New(ipt.IPv4, ipt.NFT) },
		"legacy": func() *ipttest.Fake { return ipttest.New(ipt.IPv4, ipt.Legacy) },
		"old nft": func() *ipttest.Fake {
			door := ipttest.New(ipt.IPv4, ipt.NFT)
			door.UseOldTools()
			return door
		},
	} {
		for _, flushed := range []string{portKey{"default/service-1", cluster.TCP}.chain(prefixCluster), "PREROUTING"} {
			for _, restarts := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, restart %t", name, flushed, restarts), func(t *testing.T) {
					door := &hooked{Tables: door()}
					flush := func() { tamper(t, fakeOf(door), "*nat\n-F "+flushed+"\nCOMMIT\n") }
					c := clusters.NewSized(2*maxListed, 3)
					b := newBackend(t, settings(nil), door)
					if restarts {
						sync(t, b, c.Plan())
						b = newBackend(t, settings(nil), door)
						c.Set(5, -3)
						door.onceAfter("Write", "", flush)
					} else {
						door.onceAfter("Insert", tableNAT, flush)
					}
					sync(t, b, c.Plan())
					if door.around != nil {
						t.Fatal("nothing was flushed")
					}
					repaired(t, b, c.Plan())
				})
			}
		}
	}
}

// TestOtherBytes has a chain that never compares equal, as if another release of iptables had written it: its text is compared, and it
// is right until another program modifies it, or writes what was right before.
func TestOtherBytes(t *testing.T) {
	for _, services := range []int{5, 4 * maxListed} {
		name := portKey{"default/service-4", cluster.TCP}.chain(prefixCluster)
		door := &hooked{Tables: ipttest.New(ipt.IPv4, ipt.NFT), other: name}
		b := newBackend(t, settings(nil), door)
		c := clusters.NewSized(services, 3)
		sync(t, b, c.Plan())
		check(t, b, 0)
		tamper(t, fakeOf(door), "*nat\n-I "+name+" -j RETURN\nCOMMIT\n*nat\n-D "+name+" -j RETURN\nCOMMIT\n")
		check(t, b, 0)
		before, err := door.Rules(t.Context(), tableNAT, name)
		if err != nil {
			t.Fatal(err)
		}
		c.Set(4, -3)
		sync(t, b, c.Plan())
		check(t, b, 0)
		for _, rules := range []string{"", "-A " + name + " " + strings.Join(before, "\n-A "+name+" ") + "\n"} {
			tamper(t, fakeOf(door), "*nat\n-F "+name+"\n"+rules+"COMMIT\n")
			repairs(t, b, c.Plan())
		}
	}
}

// TestLocalnetFlushedTwice flushes the chain that is shared with the kubelet, and the jumps to it, once more before the next check
// after its repair.
func TestLocalnetFlushedTwice(t *testing.T) {
	variants(t, func(t *testing.T, variant ipt.Variant) {
		for _, services := range []int{5, 2 * maxListed} {
			door := ipttest.New(ipt.IPv4, variant)
			b := newBackend(t, settings{localnetRouted: "1"}, door)
			c := clusters.NewSized(services, 3)
			c.Options.NodePorts = plan.NodePortAddresses{Loopback: true}
			p := plan.Compute(&cluster.Snapshot{Services: c.Services.Map(), Node: &cluster.Node{Interfaces: addrs("10.0.0.9", "127.0.0.1")}}, c.Options, nil)
			sync(t, b, p)
			check(t, b, 0)
			flush := func() {
				tamper(t, door, "*filter\n-F KUBE-FIREWALL\n-F INPUT\n-F OUTPUT\nCOMMIT\n")
			}
			flush()
			check(t, b, 1)
			sync(t, b, p)
			flush()
			repaired(t, b, p)
			if !strings.Contains(door.Dump(), "-A KUBE-FIREWALL ") {
				t.Errorf("with %d Services the rule that blocks neighbours is not restored", services)
			}
		}
	})
}

// TestTamperingDuringRepair modifies a chain of ours, or one with a jump to it, again while it is being repaired.
func TestTamperingDuringRepair(t *testing.T) {
	programs(t, func(t *testing.T, variant ipt.Variant, old bool) {
		for _, chain := range []string{"KUBE-SERVICES", "PREROUTING"} {
			fake := ipttest.New(ipt.IPv4, variant)
			if old {
				fake.UseOldTools()
			}
			door := &hooked{Tables: fake}
			b := newBackend(t, settings(nil), door)
			p := clusters.NewSized(5, 3).Plan()
			flush := func() { tamper(t, fake, "*nat\n-F "+chain+"\nCOMMIT\n") }
			sync(t, b, p)
			check(t, b, 0)
			flush()
			for range 3 { // it is not taken for what the kernel makes of the rules
				check(t, b, 1)
				if chain == "PREROUTING" {
					door.onceAfter("Insert", tableNAT, flush)
				} else {
					door.onceAfter("Write", "", flush)
				}
				if sync(t, b, p); door.around != nil {
					t.Fatal("the repair writes nothing")
				}
			}
			repairs(t, b, p)
		}
	})
}
