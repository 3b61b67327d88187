package iptables

import (
	"context"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt/ipttest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// slow is a door that compares no more than three chains in the time of one check.
type slow struct {
	*ipttest.Fake
	// endless means that no call ends in time.
	endless bool
}

func (s *slow) Compare(ctx context.Context, table string, expected ipt.Expected, chains ...string) (map[string]ipt.Compared, error) {
	compared, err := s.Fake.Compare(ctx, table, expected, chains...)
	if err != nil || !s.endless || len(compared) <= 3 {
		return compared, err
	}
	<-ctx.Done()
	for _, name := range slices.Sorted(maps.Keys(compared))[3:] {
		delete(compared, name)
	}
	return compared, ctx.Err()
}

// TestComparedInParts checks rules that take much longer to compare than a change may wait: one check after the other goes on where the last
// one ended, also if Syncs come in between, and what another program changed is found and repaired.
func TestComparedInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		door := &slow{Fake: ipttest.New(ipt.IPv4, ipt.NFT)}
		b := New(testOptions, settings(nil), ipttest.NewNotices(door.Fake), door)
		defer func() { _ = b.Close() }()
		c := clusters.NewSized(10, 3)
		sync(t, b, c.Plan())
		door.endless = true
		for _, name := range []string{portKey{"default/service-9", cluster.TCP}.chain(prefixCluster), "PREROUTING"} {
			tamper(t, door, "*nat\n-F "+name+"\nCOMMIT\n")
		}
		door.LoseNotices()
		found := 0
		for turn := range 20 {
			drifts, err := b.Check(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(drifts) > 0 {
				found++
			}
			c.Set(3, 3-6*(turn%2))
			sync(t, b, c.Plan())
		}
		if found == 0 {
			t.Error("nothing was found")
		}
		door.endless = false
		holds(t, b, c.Plan())
		check(t, b, 0)
	})
}

// TestLegacyIsReadAtOnce has another program write large tables of the legacy variant: no chains are left to be listed one by one, by a
// program that takes the lock and would look like another writer.
func TestLegacyIsReadAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := ipttest.New(ipt.IPv4, ipt.Legacy)
		door := &hooked{Tables: fake, around: func(operation, _ string, do func() error) error {
			if operation == "Save" {
				time.Sleep(2 * readTime) // longer than a check may compare rules
			}
			return do()
		}}
		b := New(testOptions, settings(nil), ipttest.NewNotices(fake), door)
		defer func() { _ = b.Close() }()
		c := clusters.NewSized(5, 3)
		sync(t, b, c.Plan())
		time.Sleep(time.Hour) // for the budget
		for _, drifts := range []int{1, 0, 0} {
			if drifts > 0 {
				tamper(t, fake, "*nat\n-F KUBE-SERVICES\nCOMMIT\n")
			}
			check(t, b, drifts)
			sync(t, b, c.Plan())
			time.Sleep(time.Hour)
		}
		if door.lists > 0 {
			t.Errorf("a program listed chains %d times", door.lists)
		}
		holds(t, b, c.Plan())
	})
}
