//go:build linux

package main

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// TestKernelNodeAddresses gives node1 addresses while the proxy runs, in each mode: node ports are served exactly on those that
// nodePortAddresses selects, and not after an address was removed.
func TestKernelNodeAddresses(t *testing.T) {
	t.Parallel()
	for _, mode := range []config.ProxyMode{config.ProxyModeNFTables, config.ProxyModeIPTables} {
		t.Run(string(mode), func(t *testing.T) {
			w := newTrial(t)
			w.proxy(mode, "--nodeport-addresses=172.18.0.0/16,fd00:172:18::/64")
			for _, test := range []struct{ family, selected, other string }{
				{"IPv4", "172.18.0.77", "192.0.2.77"},
				{"IPv6", "fd00:172:18::77", "2001:db8::77"},
			} {
				t.Run(test.family, func(t *testing.T) {
					w := &trial{T: t, lab: w.lab}
					w.addresses(netip.MustParseAddr(test.selected), netip.MustParseAddr(test.other))
				})
			}
		})
	}
}

// addresses gives node1 an address that is selected for node ports, and another one, and takes the first away.
func (w *trial) addresses(selected, other netip.Addr) {
	w.Helper()
	for _, addr := range []netip.Addr{other, selected} {
		if err := w.lab.Node1.AddAddress(netip.PrefixFrom(addr, addr.BitLen())); err != nil {
			w.Fatal(err)
		}
	}
	probe := netns.Probe{From: w.lab.Client, To: netip.AddrPortFrom(selected, 30080)}
	w.until(probe, netns.Answered, w.endpoint().Name)
	probe.To = netip.AddrPortFrom(other, 30080)
	w.until(probe, netns.Refused, "") // by node1 itself, where nothing listens
	if err := w.lab.Node1.DelAddress(netip.PrefixFrom(selected, selected.BitLen())); err != nil {
		w.Fatal(err)
	}
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		out, err := w.lab.Node1.Command("nft", "list", "ruleset").Output() // which has the rules of iptables, too
		if err != nil || !strings.Contains(string(out), w.lab.Node1.Addr(netns.FamilyOf(selected)).String()) {
			w.Fatalf("%v, and the node's own address is not in\n%s", err, out)
		}
		if !strings.Contains(string(out), selected.String()) {
			return
		}
		if time.Since(began) > patience {
			w.Fatalf("the address that is gone is still served:\n%s", out)
		}
	}
}
