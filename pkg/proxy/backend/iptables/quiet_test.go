package iptables

import (
	"context"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// TestKernelQuiet syncs in both families of the nft variant: our own transactions are told from others', so that no look
// at all rules follows a sync.
func TestKernelQuiet(t *testing.T) {
	netns.Enter(t, "iptables-nft")
	var doors []ipt.Tables
	for _, family := range []ipt.Family{ipt.IPv4, ipt.IPv6} {
		door, err := ipt.Open(context.Background(), family, ipt.NFT)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = door.Close() })
		doors = append(doors, door)
	}
	b := New(testOptions, noSettings{}, doors...)
	c := newSized(5, 2)
	sync(t, b, c.plan())
	for _, endpoints := range []int{3, -3, 1, 0, 2} {
		c.set(4, endpoints)
		sync(t, b, c.plan())
		for _, f := range b.families {
			if f.watch.suspect {
				t.Errorf("%s: after %d endpoints of our own, somebody else is suspected", f.is, endpoints)
			}
			if len(f.watch.digests) == 0 {
				t.Errorf("%s: nothing is known of the chains", f.is)
			}
		}
	}
}
