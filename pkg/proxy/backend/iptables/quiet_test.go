package iptables

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/keeper"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// attended returns a backend of both families in a new network namespace.
func attended(t *testing.T, variant ipt.Variant) (*Backend, keeper.Notices, []*hooked) {
	t.Helper()
	netns.Enter(t, "iptables-"+string(variant))
	var doors []ipt.Tables
	var seen []*hooked
	for _, family := range []ipt.Family{ipt.IPv4, ipt.IPv6} {
		door, err := ipt.Open(context.Background(), family, variant)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = door.Close() })
		seen = append(seen, &hooked{Tables: door})
		doors = append(doors, seen[len(seen)-1])
	}
	notices := noticesOf(t, doors...)
	return New(testOptions, settings(nil), notices, doors...), notices, seen
}

// TestKernelQuietLegacy syncs both families in the legacy variant, whose programs share one lock: the lock of one
// family must not be mistaken for an external change in the other.
func TestKernelQuietLegacy(t *testing.T) {
	t.Setenv("XTABLES_LOCKFILE", t.TempDir()+"/lock") // other tests use the machine's
	b, notices, doors := attended(t, ipt.Legacy)
	c := clusters.NewSized(5, 2)
	sync(t, b, c.Plan())
	check(t, b, 0)
	for _, endpoints := range []int{3, -3, 1, 0, 2} {
		c.Set(4, endpoints)
		sync(t, b, c.Plan())
		if _, all := notices.Take(); !all {
			t.Errorf("after a sync with %d endpoints an external change is suspected", endpoints)
		}
		check(t, b, 0) // it does not take the lock
		if _, all := notices.Take(); !all {
			t.Errorf("after a check with %d endpoints an external change is suspected", endpoints)
		}
	}
	for _, door := range doors { // and a write of another program
		door.saves = 0
		if err := door.Write(t.Context(), &ipt.Transaction{Table: tableNAT, Chains: []ipt.Chain{{Name: "EXTERNAL"}}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Check(t.Context()); err != nil || doors[0].saves == 0 || doors[1].saves == 0 {
		t.Errorf("an external change was not checked: %v", err)
	}
}

// externally changes tables of IPv4 by a program.
func externally(t *testing.T, input string) {
	t.Helper()
	command := exec.Command("iptables-nft-restore", "--noflush")
	command.Stdin = strings.NewReader(input)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestKernelQuiet syncs both families in the nft variant while another program writes many rules elsewhere: only the
// chains just written are read. When that program changes one of our chains, only that chain is read and reported.
func TestKernelQuiet(t *testing.T) {
	b, _, doors := attended(t, ipt.NFT)
	ipv4 := doors[0]
	c := clusters.NewSized(5, 2)
	sync(t, b, c.Plan())
	check(t, b, 0)
	ipv4.whole, ipv4.single = 0, 0
	for _, endpoints := range []int{3, -3, 1, 0, 2} {
		externally(t, "*nat\n:OTHER - [0:0]\n"+strings.Repeat("-A OTHER -p tcp -m tcp --dport 80 -j RETURN\n", 500)+"COMMIT\n*filter\n:OTHER - [0:0]\nCOMMIT\n")
		c.Set(4, endpoints)
		sync(t, b, c.Plan())
		check(t, b, 0)
		if ipv4.whole > 0 || ipv4.single > 20 {
			t.Errorf("with %d endpoints of our own, %d whole tables and %d chains were read", endpoints, ipv4.whole, ipv4.single)
		}
		ipv4.whole, ipv4.single = 0, 0
	}
	name := portKey{"default/service-3", cluster.TCP}.chain(prefixCluster)
	externally(t, "*nat\n:"+name+" - [0:0]\n-A "+name+" -j RETURN\nCOMMIT\n")
	drifts, err := b.Check(t.Context())
	if err != nil || len(drifts) != 1 || !strings.Contains(drifts[0].What, name) || !strings.HasPrefix(drifts[0].Writer, "iptables-nft-re") {
		t.Errorf("Check returned %v, %v; want that %s was modified", drifts, err, name)
	}
	if ipv4.whole != 0 || ipv4.single != 1 {
		t.Errorf("%d whole tables and %d chains were read, want one chain", ipv4.whole, ipv4.single)
	}
	sync(t, b, c.Plan())
	holds(t, b, c.Plan())
}

// TestKernelBusyNeighbour changes a built-in chain repeatedly: a program lists it only when a jump of ours is missing.
func TestKernelBusyNeighbour(t *testing.T) {
	netns.Enter(t, "iptables-nft")
	kernel, err := ipt.Open(context.Background(), ipt.IPv4, ipt.NFT)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kernel.Close() })
	door := &hooked{Tables: kernel}
	b, c := newBackend(t, settings(nil), door), clusters.NewSized(5, 2)
	sync(t, b, c.Plan())
	check(t, b, 0)
	listed := door.lists
	external := func(rule string, want int) {
		t.Helper()
		externally(t, "*nat\n"+rule+"\nCOMMIT\n")
		check(t, b, want)
	}
	for range 5 {
		external("-I OUTPUT -d 198.51.100.1/32 -j ACCEPT", 0)
		external("-D OUTPUT -d 198.51.100.1/32 -j ACCEPT", 0)
	}
	if door.lists != listed {
		t.Errorf("a program listed chains %d times", door.lists-listed)
	}
	for range 2 {
		external("-D OUTPUT 1", 1)
		sync(t, b, c.Plan())
		holds(t, b, c.Plan())
		check(t, b, 0)
		external("-I OUTPUT 1 -d 198.51.100.1/32 -j ACCEPT", 0)
		external("-D OUTPUT 1", 0)
	}
}

// TestKernelRestartReadsNoText restarts in the nft variant: no program prints a table, chains that are right are not
// written, others are, and an external change after the restart is detected.
func TestKernelRestartReadsNoText(t *testing.T) {
	b, _, doors := attended(t, ipt.NFT)
	c := clusters.NewSized(200, 2)
	sync(t, b, c.Plan())
	c.Set(4, -2) // to be refused after the restart
	var tables []ipt.Tables
	for _, door := range doors {
		tables = append(tables, door)
	}
	for _, want := range []struct{ restart, most int }{{1, 4}, {2, 0}} {
		for _, door := range doors {
			door.saves, door.writes = 0, 0
		}
		b = newBackend(t, settings(nil), tables...)
		sync(t, b, c.Plan())
		for _, door := range doors {
			// iptables 1.8.7 cannot list what Compare would compare: its tables are printed.
			if door.saves > 0 && door.Features().AddressBits || door.writes > want.most {
				t.Errorf("restart %d, %s: %d tables were printed and %d transactions written, want at most %d", want.restart, door.Family(), door.saves, door.writes, want.most)
			}
		}
		holds(t, b, c.Plan())
	}
	check(t, b, 0)
	name := portKey{"default/service-3", cluster.TCP}.chain(prefixCluster)
	externally(t, "*nat\n:"+name+" - [0:0]\n-A "+name+" -j RETURN\nCOMMIT\n")
	repairs(t, b, c.Plan())
}
