package iptables

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// TestTamperingBetweenSyncs checks that an external change is reported even if a sync of our own follows immediately.
func TestTamperingBetweenSyncs(t *testing.T) {
	variants(t, func(t *testing.T, variant ipt.Variant) {
		b, door := oneFake(variant)
		c := clusters.NewSized(5, 3)
		sync(t, b, c.Plan())
		tamper(t, door, "*nat\n-F KUBE-SERVICES\nCOMMIT\n")
		c.Set(4, -3)
		sync(t, b, c.Plan())
		check(t, b, 1)
		sync(t, b, c.Plan())
		holds(t, b, c.Plan())
	})
}

// TestTamperingBeforeLargeRepair has another program empty one table after the other, as firewalld does, with a check and
// a repair of many chains in between: the second table is repaired, too.
func TestTamperingBeforeLargeRepair(t *testing.T) {
	variants(t, func(t *testing.T, variant ipt.Variant) {
		b, door := oneFake(variant)
		p := clusters.NewSized(2*maxRecorded, 3).Plan()
		sync(t, b, p)
		check(t, b, 0)
		var nat strings.Builder
		for number := range 2 * maxRecorded {
			fmt.Fprintf(&nat, "-F %s\n", portKey{fmt.Sprint("default/service-", number), cluster.TCP}.chain(prefixCluster))
		}
		tamper(t, door, "*nat\n-F PREROUTING\n"+nat.String()+"COMMIT\n")
		check(t, b, 1)
		tamper(t, door, "*filter\n-F INPUT\n-F FORWARD\n-F KUBE-FORWARD\nCOMMIT\n")
		sync(t, b, p)
		check(t, b, 1)
		sync(t, b, p)
		holds(t, b, p)
		check(t, b, 0)
	})
}

// amid is a Fake with another program that writes once: between a write and the next reading, after the jump in
// PREROUTING is written, or after the next transaction.
type amid struct {
	*ipt.Fake
	write, jumped, restored func()
	// fails is returned by the next reading.
	fails error
	// odd is a chain that never compares equal.
	odd string
}

func once(f *func()) {
	if do := *f; do != nil {
		*f = nil
		do()
	}
}

// reads is called before each reading.
func (a *amid) reads() (fails error) {
	once(&a.write)
	fails, a.fails = a.fails, nil
	return fails
}

func (a *amid) Digests(ctx context.Context, table string, chains ...string) (map[string]uint64, error) {
	if err := a.reads(); err != nil {
		return nil, err
	}
	return a.Fake.Digests(ctx, table, chains...)
}

func (a *amid) Compare(ctx context.Context, table string, expected func(chain string) []ipt.Rule, chains ...string) (map[string]ipt.Compared, error) {
	if err := a.reads(); err != nil {
		return nil, err
	}
	found, err := a.Fake.Compare(ctx, table, expected, chains...)
	if c, ok := found[a.odd]; ok {
		found[a.odd] = ipt.Compared{Digest: c.Digest}
	}
	return found, err
}

func (a *amid) Insert(ctx context.Context, table string, rules ...ipt.ChainRule) error {
	err := a.Fake.Insert(ctx, table, rules...)
	if table == tableNAT {
		once(&a.jumped)
	}
	return err
}

func (a *amid) Write(ctx context.Context, transaction *ipt.Transaction) error {
	err := a.Fake.Write(ctx, transaction)
	once(&a.restored)
	return err
}

// repaired checks and syncs until nothing is found, and then that the tables hold the plan.
func repaired(t *testing.T, b *Backend, p *plan.Plan) {
	t.Helper()
	for range 4 {
		for _, f := range b.families {
			f.drift.triggered, f.drift.polling = allowance{}, allowance{}
		}
		if _, err := b.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		sync(t, b, p)
	}
	holds(t, b, p)
	check(t, b, 0)
}

// TestTamperingUnseen has another program empty a chain that is not written, before or during a sync after which the digests cannot
// be read.
func TestTamperingUnseen(t *testing.T) {
	variants(t, func(t *testing.T, variant ipt.Variant) {
		for _, before := range []bool{true, false} {
			const services = 2 * maxRecorded // in the legacy variant, digests are read after large writes only
			door := &amid{Fake: ipt.NewFake(ipt.IPv4, variant)}
			b := New(testOptions, noSettings{}, door)
			c := clusters.NewSized(services, 3)
			sync(t, b, c.Plan())
			check(t, b, 0)
			flush := func() {
				chain := portKey{"default/service-1", cluster.TCP}.chain(prefixCluster)
				tamper(t, door, "*nat\n-F PREROUTING\n-F "+chain+"\nCOMMIT\n")
			}
			if before {
				flush()
			} else {
				door.write = flush
			}
			for i := range services {
				if i == 4 || variant == ipt.Legacy && i != 1 {
					c.Set(i, -3)
				}
			}
			door.fails = ipt.ErrBusy
			sync(t, b, c.Plan())
			door.fails, door.write = nil, nil
			repaired(t, b, c.Plan())
		}
	})
}

// TestTamperingDuringStart has another program empty a chain, or remove the jumps, while the first rules are written, after that
// chain or these jumps; or while a restart reads and writes another chain.
func TestTamperingDuringStart(t *testing.T) {
	for name, door := range map[string]func() *ipt.Fake{
		"nft":    func() *ipt.Fake { return ipt.NewFake(ipt.IPv4, ipt.NFT) },
		"legacy": func() *ipt.Fake { return ipt.NewFake(ipt.IPv4, ipt.Legacy) },
		"old nft": func() *ipt.Fake {
			door := ipt.NewFake(ipt.IPv4, ipt.NFT)
			door.UseOldTools()
			return door
		},
	} {
		for _, flushed := range []string{portKey{"default/service-1", cluster.TCP}.chain(prefixCluster), "PREROUTING"} {
			for _, restarts := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, restart %t", name, flushed, restarts), func(t *testing.T) {
					door := &amid{Fake: door()}
					flush := func() { tamper(t, door, "*nat\n-F "+flushed+"\nCOMMIT\n") }
					c := clusters.NewSized(2*maxRecorded, 3)
					b := New(testOptions, noSettings{}, door)
					if restarts {
						sync(t, b, c.Plan())
						b = New(testOptions, noSettings{}, door)
						c.Set(5, -3)
						door.restored = flush
					} else {
						door.jumped = flush
					}
					sync(t, b, c.Plan())
					if door.restored != nil || door.jumped != nil {
						t.Fatal("nothing was flushed")
					}
					repaired(t, b, c.Plan())
				})
			}
		}
	}
}

// TestOddChain has a chain that never compares equal, as if the kernel returned its rules with other bytes than expected: it is written
// once more, and then right until another program modifies it.
func TestOddChain(t *testing.T) {
	for _, services := range []int{5, 2 * maxRecorded} {
		door := &amid{Fake: ipt.NewFake(ipt.IPv4, ipt.NFT), odd: "KUBE-SERVICES"}
		b := New(testOptions, noSettings{}, door)
		p := clusters.NewSized(services, 3).Plan()
		sync(t, b, p)
		check(t, b, 1)
		sync(t, b, p)
		for range 3 {
			check(t, b, 0)
		}
		tamper(t, door, "*nat\n-F KUBE-SERVICES\nCOMMIT\n")
		check(t, b, 1)
		sync(t, b, p)
		holds(t, b, p)
		check(t, b, 0)
	}
}

// TestLocalnetFlushedTwice flushes the chain that is shared with the kubelet, and the jumps to it, once more before the next check
// after its repair.
func TestLocalnetFlushedTwice(t *testing.T) {
	variants(t, func(t *testing.T, variant ipt.Variant) {
		for _, services := range []int{5, 2 * maxRecorded} {
			door := ipt.NewFake(ipt.IPv4, variant)
			b := New(testOptions, settings{localnetRouted: "1"}, door)
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
	for _, chain := range []string{"KUBE-SERVICES", "PREROUTING"} {
		door := &amid{Fake: ipt.NewFake(ipt.IPv4, ipt.NFT)}
		b := New(testOptions, noSettings{}, door)
		p := clusters.NewSized(5, 3).Plan()
		flush := func() {
			tamper(t, door, "*nat\n-F "+chain+"\nCOMMIT\n")
		}
		sync(t, b, p)
		check(t, b, 0)
		flush()
		for range 3 { // it is not taken for what the kernel makes of the rules
			check(t, b, 1)
			door.write = flush
			sync(t, b, p)
			if door.write != nil {
				t.Fatal("the repair reads nothing")
			}
		}
		check(t, b, 1)
		sync(t, b, p)
		holds(t, b, p)
	}
}
