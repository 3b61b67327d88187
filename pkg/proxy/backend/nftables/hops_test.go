package nftables

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/test/cases"
	"github.com/seed-11a05479/kube-proxy/test/laws"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// openIn opens a backend on the tables of a host of the lab.
func openIn(t *testing.T, host *netns.Host) *Backend {
	t.Helper()
	var b *Backend
	if err := host.Do(func() error {
		opened, err := Mode{Options: testOptions}.Open(t.Context(), cluster.IPv4, cluster.IPv6)
		b, _ = opened.(*Backend)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// list returns nft's listing of a host's tables without elements: sets and chains, sorted.
func list(t *testing.T, host *netns.Host) []string {
	t.Helper()
	var objects []string
	for _, family := range []string{"ip", "ip6"} {
		if out, err := host.Command("nft", "list", "table", family, TableName).CombinedOutput(); err != nil {
			t.Fatalf("nft cannot list the tables: %v\n%s", err, out)
		}
		out, err := host.Command("nft", "-s", "-t", "list", "table", family, TableName).Output()
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, strings.Split(string(out), "\n\n")...)
	}
	slices.Sort(objects)
	return objects
}

// TestKernelHops applies the cases to one running backend in random order, with some restarts: after each, the kernel's
// tables equal those that another backend writes into an empty namespace, and nft can list them.
func TestKernelHops(t *testing.T) {
	t.Parallel()
	all := cases.Named(t, "../../../../test/cases", "")
	lab := netns.Start(t, netns.Options{})
	rnd := rand.New(rand.NewPCG(1, 2))
	b, fresh := openIn(t, lab.Node1.Host), openIn(t, lab.Node2.Host) // few: each is notified of what all others write
	for hop, at := range rnd.Perm(len(all)) {
		c := all[at]
		if rnd.IntN(8) == 0 {
			b = openIn(t, lab.Node1.Host)
		}
		p := c.Plan()
		err := errors.Join(
			lab.Node1.Do(func() error { return laws.Err(b.Sync(context.Background(), p)) }),
			lab.Node2.Do(func() error {
				return errors.Join(fresh.Cleanup(context.Background()), laws.Err(fresh.Sync(context.Background(), p)))
			}))
		if err != nil {
			t.Fatalf("hop %d, to %s: %v", hop, c.Name, err)
		}
		holds(t, b, p)
		for i, f := range b.families {
			if got, want := f.have.fingerprint, fresh.families[i].have.fingerprint; got != want {
				t.Fatalf("hop %d, to %s: the %s table differs from a fresh one (-fresh +hopped):\n%s", hop, c.Name, f.schema.family,
					cmp.Diff(list(t, lab.Node2.Host), list(t, lab.Node1.Host)))
			}
		}
		list(t, lab.Node1.Host)
	}
	t.Logf("%d hops", len(all))
}
