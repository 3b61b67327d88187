package iptables

import (
	"context"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// attentive is a door that counts what is looked at.
type attentive struct {
	ipt.Tables
	// all counts looks at a whole table, some chains looked at alone.
	all, some int
	// lists counts chains listed by a program.
	lists int
}

func (d *attentive) Rules(table, chain string) ([]string, error) {
	d.lists++
	return d.Tables.Rules(table, chain)
}

func (d *attentive) Digests(ctx context.Context, table string, chains ...string) (map[string]uint64, error) {
	if len(chains) == 0 {
		d.all++
	}
	d.some += len(chains)
	return d.Tables.Digests(ctx, table, chains...)
}

// TestKernelQuiet syncs in both families of the nft variant while another program writes rules elsewhere, many at a time:
// none of ours is looked at but those just written. Once it alters a chain of ours, that one is, and found.
func TestKernelQuiet(t *testing.T) {
	netns.Enter(t, "iptables-nft")
	var doors []ipt.Tables
	for _, family := range []ipt.Family{ipt.IPv4, ipt.IPv6} {
		door, err := ipt.Open(context.Background(), family, ipt.NFT)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = door.Close() })
		doors = append(doors, &attentive{Tables: door})
	}
	ipv4 := doors[0].(*attentive)
	b := New(testOptions, noSettings{}, doors...)
	c := clusters.NewSized(5, 2)
	sync(t, b, c.Plan())
	ipv4.all = 0
	stranger := func(input string) {
		t.Helper()
		if err := ipv4.Tables.Restore(t.Context(), input); err != nil {
			t.Fatal(err)
		}
	}
	for _, endpoints := range []int{3, -3, 1, 0, 2} {
		stranger("*nat\n:OTHER - [0:0]\n" + strings.Repeat("-A OTHER -p tcp -m tcp --dport 80 -j RETURN\n", 500) + "COMMIT\n*filter\n:OTHER - [0:0]\nCOMMIT\n")
		c.Set(4, endpoints)
		sync(t, b, c.Plan())
		check(t, b, 0)
		if ipv4.all > 0 || ipv4.some > 20 {
			t.Errorf("with %d endpoints of our own, there were %d looks at whole tables and %d at chains", endpoints, ipv4.all, ipv4.some)
		}
		ipv4.all, ipv4.some = 0, 0
	}
	name := portKey{"default/service-3", cluster.TCP}.chain(prefixCluster)
	stranger("*nat\n:" + name + " - [0:0]\n-A " + name + " -j RETURN\nCOMMIT\n")
	drifts, err := b.Check(t.Context())
	if err != nil || len(drifts) != 1 || !strings.Contains(drifts[0].What, name) || !strings.HasPrefix(drifts[0].Writer, "iptables-nft-re") {
		t.Errorf("Check says %v, %v; want that %s was altered", drifts, err, name)
	}
	if ipv4.all != 0 || ipv4.some != 1 {
		t.Errorf("for that there were %d looks at whole tables and %d at chains, want one chain", ipv4.all, ipv4.some)
	}
	sync(t, b, c.Plan())
	holds(t, b, c.Plan())
}

// TestKernelBusyNeighbour changes a built-in chain again and again: a program lists it once, and is needed again only when a
// jump of ours is gone.
func TestKernelBusyNeighbour(t *testing.T) {
	netns.Enter(t, "iptables-nft")
	kernel, err := ipt.Open(context.Background(), ipt.IPv4, ipt.NFT)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kernel.Close() })
	door := &attentive{Tables: kernel}
	b, c := New(testOptions, noSettings{}, door), clusters.NewSized(5, 2)
	sync(t, b, c.Plan())
	stranger := func(rule string, want int) {
		t.Helper()
		if err := kernel.Restore(t.Context(), "*nat\n"+rule+"\nCOMMIT\n"); err != nil {
			t.Fatal(err)
		}
		check(t, b, want)
	}
	for range 5 {
		stranger("-I OUTPUT -d 198.51.100.1/32 -j ACCEPT", 0)
		stranger("-D OUTPUT -d 198.51.100.1/32 -j ACCEPT", 0)
	}
	if door.lists != 1 {
		t.Errorf("a program listed a chain %d times, want once", door.lists)
	}
	for range 2 {
		stranger("-D OUTPUT 1", 1)
		sync(t, b, c.Plan())
		holds(t, b, c.Plan())
		check(t, b, 0)
		stranger("-I OUTPUT 1 -d 198.51.100.1/32 -j ACCEPT", 0)
		stranger("-D OUTPUT 1", 0)
	}
}
