package iptables

import (
	"context"
	"maps"
	"slices"
	"testing"
	"testing/synctest"

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
		b := New(testOptions, noSettings{}, ipttest.NewNotices(door.Fake), door)
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
		holds(t, b, c.Plan())
		check(t, b, 0)
	})
}
