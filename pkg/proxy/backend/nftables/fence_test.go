package nftables

import (
	"context"
	"strings"
	"testing"

	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft/nfttest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// recorded is a table that keeps what was written as text.
type recorded struct {
	*nfttest.Fake
	text string
}

func (r *recorded) Run(ctx context.Context, tx *nft.Transaction) error {
	r.text += tx.Onto(knftables.NewFake(knftables.Family(r.Family().String()), r.Name()).NewTransaction()).String()
	return r.Fake.Run(ctx, tx)
}

// TestFenceIsRemoved removes bounds that need one set for clients: that is deleted, and no other is declared for it, since the kernel
// allocates memory for all of its clients.
func TestFenceIsRemoved(t *testing.T) {
	table := &recorded{Fake: nfttest.New(nf.IPv4, TableName)}
	b, c := newBackend(testOptions, table), clusters.NewSized(2, 2)
	c.Options.Fences.On = true
	was, _ := c.Services.Get(clusters.NameAt(1))
	bounded := *was
	bounded.Fence = &cluster.AskedFence{Fence: cluster.Fence{ClientPerSecond: 3}}
	c.Services.Set(bounded.Name, &bounded)
	mustSync(t, b, c.Plan())
	if !strings.Contains(table.Dump(), "set "+ratePrefix) {
		t.Fatalf("there are no bounds:\n%s", table.Dump())
	}
	table.text = ""
	c.Services.Set(was.Name, was)
	mustSync(t, b, c.Plan())
	holds(t, b, c.Plan())
	if now := table.text + table.Dump(); strings.Contains(now, openPrefix) || strings.Contains(table.Dump(), ratePrefix) || !strings.Contains(now, "delete set ip kube-proxy "+ratePrefix) {
		t.Errorf("wrote\n%s\nand there is\n%s", table.text, table.Dump())
	}
}
