package node

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

func addrs(texts ...string) (all []netip.Addr) {
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// whole is a node that lacks nothing.
func whole(change ...func(*cluster.Node)) *cluster.Node {
	n := &cluster.Node{Name: "n", Exists: true, PodCIDRs: prefixes("10.244.1.0/24"),
		Addresses: addrs("192.0.2.1", "192.0.2.2", "2001:db8::1")}
	for _, c := range change {
		c(n)
	}
	return n
}

func noAddresses(n *cluster.Node) { n.Addresses = nil }
func noPodCIDRs(n *cluster.Node)  { n.PodCIDRs = nil }
func gone(n *cluster.Node)        { n.Exists, n.Draining = false, true }

// TestAwait lets a node come to be as it does in a cloud, step by step.
func TestAwait(t *testing.T) {
	for _, test := range []struct {
		name  string
		steps []*cluster.Node // one each second
		need  bool
		after time.Duration // 0 is never
		says  string
	}{
		{name: "is there", steps: []*cluster.Node{whole()}, need: true, after: time.Nanosecond},
		{name: "comes", steps: []*cluster.Node{{Name: "n"}, whole(noAddresses), whole(noPodCIDRs), whole()}, need: true, after: 3 * time.Second},
		{name: "comes, pod CIDRs do not matter", steps: []*cluster.Node{{Name: "n"}, whole(noAddresses), whole(noPodCIDRs)}, after: 2 * time.Second},
		{name: "never comes", steps: []*cluster.Node{{Name: "n"}}, says: "is not known"},
		{name: "has addresses of the user only", steps: []*cluster.Node{{Name: "n", Addresses: addrs("192.0.2.1")}}, says: "is not known"},
		{name: "never has addresses", steps: []*cluster.Node{whole(noAddresses)}, says: "InternalIP"},
		{name: "never has pod CIDRs", steps: []*cluster.Node{whole(noPodCIDRs)}, need: true, says: "podCIDRs"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				snapshot := func() *cluster.Snapshot {
					step := min(int(time.Since(began)/time.Second), len(test.steps)-1)
					return &cluster.Snapshot{Node: test.steps[step]}
				}
				got, err := Await(t.Context(), snapshot, test.need)
				waited := time.Since(began)
				if test.after == 0 {
					if err == nil || !strings.Contains(err.Error(), test.says) || waited != patience {
						t.Errorf("after %s: %v, want an error after %s that says %q", waited, err, patience, test.says)
					}
					return
				}
				if err != nil || waited > test.after+100*time.Millisecond {
					t.Fatalf("after %s: %v", waited, err)
				}
				want := Identity{Name: "n", Addresses: addrs("192.0.2.1", "2001:db8::1")}
				if test.need {
					want.PodCIDRs = prefixes("10.244.1.0/24")
				}
				if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
					cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestAwaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		_, err := Await(ctx, func() *cluster.Snapshot { return &cluster.Snapshot{Node: &cluster.Node{}} }, false)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

func TestPrimary(t *testing.T) {
	for want, node := range map[cluster.Family]*cluster.Node{
		cluster.IPv4: whole(),
		cluster.IPv6: whole(func(n *cluster.Node) { n.Addresses = addrs("2001:db8::1", "192.0.2.1") }),
	} {
		if got := Of(node, false).Primary(); got != want {
			t.Errorf("%v: got %s, want %s", node.Addresses, got, want)
		}
	}
	if got := (Identity{}).Primary(); got != cluster.IPv4 {
		t.Errorf("without an address: %s", got)
	}
}

// TestWatch tells which changes of a node end the proxy.
func TestWatch(t *testing.T) {
	otherPods := func(n *cluster.Node) { n.PodCIDRs = prefixes("10.244.2.0/24") }
	for _, test := range []struct {
		name string
		now  *cluster.Node
		need bool
		says string // empty is nothing
	}{
		{name: "nothing", now: whole(), need: true},
		{name: "zone, taint and interfaces", now: whole(func(n *cluster.Node) { n.Zone, n.Draining, n.Interfaces = "b", true, addrs("127.0.0.1") })},
		{name: "a second address of a family", now: whole(func(n *cluster.Node) { n.Addresses = addrs("192.0.2.1", "2001:db8::1", "192.0.2.9") })},
		{name: "a list of addresses that is empty for a moment", now: whole(noAddresses)},
		{name: "another address", now: whole(func(n *cluster.Node) { n.Addresses[0] = addrs("192.0.2.3")[0] }), says: "had [192.0.2.1 2001:db8::1]"},
		{name: "one family less", now: whole(func(n *cluster.Node) { n.Addresses = addrs("192.0.2.1") }), says: "addresses: [192.0.2.1]"},
		{name: "another primary family", now: whole(func(n *cluster.Node) { n.Addresses = addrs("2001:db8::1", "192.0.2.1") }), says: "addresses"},
		{name: "other pod CIDRs that matter", now: whole(otherPods), need: true, says: "pod CIDRs: [10.244.2.0/24]"},
		{name: "no pod CIDRs any more", now: whole(noPodCIDRs), need: true, says: "pod CIDRs"},
		{name: "other pod CIDRs that do not matter", now: whole(otherPods)},
		{name: "deleted", now: whole(gone), says: "deleted"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				w := NewWatch(Of(whole(), test.need))
				var ended atomic.Bool
				var err error
				go func() { err = w.Run(ctx); ended.Store(true) }()
				for range 3 { // further changes must not block the loop
					w.Synced(&proxy.Sync{After: &cluster.Snapshot{Node: test.now}})
				}
				synctest.Wait()
				switch {
				case test.says == "" && ended.Load():
					t.Errorf("ended: %v", err)
				case test.says != "" && (!ended.Load() || err == nil || !strings.Contains(err.Error(), test.says)):
					t.Errorf("ended: %t, %v; want an error that says %q", ended.Load(), err, test.says)
				}
				cancel()
				if synctest.Wait(); !ended.Load() || test.says == "" && err != nil {
					t.Errorf("after the end: %t, %v", ended.Load(), err)
				}
			})
		})
	}
}
