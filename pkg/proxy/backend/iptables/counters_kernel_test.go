package iptables_test

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/backendtest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// counted reads a counter in the node's network namespace.
func counted(t *testing.T, b *backendtest.Bench, read func(cluster.Family) (uint64, error), family cluster.Family) (packets uint64) {
	t.Helper()
	if err := b.Lab.Node1.Do(func() (err error) { packets, err = read(family); return err }); err != nil {
		t.Fatal(err)
	}
	return packets
}

// TestKernelLocalhostAccepted checks that each connection to a node port on localhost is counted once, regardless of
// its number of packets, and that other connections are not counted.
func TestKernelLocalhostAccepted(t *testing.T) {
	variants(t, func(t *testing.T, variant ipt.Variant) {
		b := backendtest.NewBench(t, opener(variant))
		want := func(when string, ipv4 uint64) {
			t.Helper()
			for family, want := range map[cluster.Family]uint64{cluster.IPv4: ipv4, cluster.IPv6: 0} {
				if n := counted(t, b, b.Backend.Counters().LocalhostAccepted, family); n != want {
					t.Errorf("%s, %s: %d connections counted, want %d", when, family, n, want)
				}
			}
		}
		ask := func(protocol netns.Protocol, to string, times int) {
			t.Helper()
			probe := netns.Probe{From: b.Lab.Node1.Host, To: netip.MustParseAddrPort(to), Protocol: protocol}
			if tally := probe.Spread(times); tally.Failed() > 0 {
				t.Errorf("%s: %s", probe, tally)
			}
		}
		want("before anything is written", 0)
		b.Sync(t, case4(t, own, "localhost-node-ports").Plan())
		for _, other := range []string{"127.0.0.1:8080", "172.18.0.11:30080", "10.96.0.10:80"} {
			ask(netns.TCP, other, 2)
		}
		want("after connections to elsewhere", 0)
		ask(netns.TCP, "127.0.0.1:30080", 5)
		want("after connections", 5)
		ask(netns.TCP, "127.1.2.3:30080", 1)
		want("after one to another address", 6)
		connection, err := b.Lab.Node1.Dial(t.Context(), "udp", "127.0.0.1:30080")
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close()
		for range 5 { // before or after the first one is answered
			if _, err := connection.Write([]byte("a datagram")); err != nil {
				t.Fatal(err)
			}
		}
		want("after datagrams", 7)
	})
}

// TestKernelInvalidDropped checks that segments of unknown connections are dropped and counted.
func TestKernelInvalidDropped(t *testing.T) {
	variants(t, func(t *testing.T, variant ipt.Variant) {
		b := backendtest.NewBench(t, opener(variant))
		b.Sync(t, case4(t, shared, "cluster-ip").Plan())
		for family, of := range map[cluster.Family]netns.Family{cluster.IPv4: netns.IPv4, cluster.IPv6: netns.IPv6} {
			const segments = 3
			before := counted(t, b, b.Backend.Counters().InvalidDropped, family)
			reset(t, b.Lab.Node2.Pods[0], b.Lab.Node1.Pods[0].Addr(of), segments)
			now := before
			waiting, cancel := context.WithCancel(t.Context())
			stop := b.Lab.After(10*time.Second, cancel)
			for waiting.Err() == nil && now < before+segments {
				now = counted(t, b, b.Backend.Counters().InvalidDropped, family)
			}
			stop()
			cancel()
			if now != before+segments {
				t.Errorf("%s: counter %d, was %d before %d packets were sent", family, now, before, segments)
			}
		}
	})
}

// reset sends segments with the flag RST from port 1 to port 2. They belong to no connection.
func reset(t *testing.T, from *netns.Host, to netip.Addr, segments int) {
	t.Helper()
	network := "ip4:tcp"
	if to.Is6() {
		network = "ip6:tcp"
	}
	raw, err := from.Dial(t.Context(), network, to.String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	for range segments {
		if _, err := raw.Write([]byte{0, 1, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 5 << 4, 1 << 2, 0, 0, 0, 0, 0, 0}); err != nil {
			t.Fatal(err)
		}
	}
}
