//go:build linux

package main

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// TestKernelNodeAddresses gives node1 addresses while the proxy runs: node ports are served on those that
// nodePortAddresses selects, and on no other; and no longer when an address has gone.
func TestKernelNodeAddresses(t *testing.T) {
	w := newTrial(t)
	w.proxy("--nodeport-addresses=172.18.0.0/16,fd00:172:18::/64")
	for _, test := range []struct{ family, table, selected, other string }{
		{"IPv4", "ip", "172.18.0.77", "192.0.2.77"},
		{"IPv6", "ip6", "fd00:172:18::77", "2001:db8::77"},
	} {
		t.Run(test.family, func(t *testing.T) {
			w := &trial{T: t, lab: w.lab}
			selected, other := netip.MustParseAddr(test.selected), netip.MustParseAddr(test.other)
			for _, addr := range []netip.Addr{other, selected} {
				if err := w.lab.Node1.AddAddress(netip.PrefixFrom(addr, addr.BitLen())); err != nil {
					t.Fatal(err)
				}
			}
			probe := netns.Probe{From: w.lab.Client, To: netip.AddrPortFrom(selected, 30080)}
			w.until(probe, netns.Answered, w.endpoint().Name)
			probe.To = netip.AddrPortFrom(other, 30080)
			w.until(probe, netns.Refused, "") // by node1 itself, where nobody listens
			if err := w.lab.Node1.DelAddress(netip.PrefixFrom(selected, selected.BitLen())); err != nil {
				t.Fatal(err)
			}
			for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
				out, err := w.lab.Node1.Command("nft", "list", "set", test.table, "kube-proxy", "node-addresses").CombinedOutput()
				if err != nil || !strings.Contains(string(out), "172") {
					t.Fatalf("%v: %s", err, out)
				}
				if !strings.Contains(string(out), test.selected) {
					break
				}
				if time.Since(began) > patience {
					t.Fatalf("the address that is gone is still served:\n%s", out)
				}
			}
		})
	}
}
