//go:build linux

package backendtest

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/test/cases"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// Loops sends the packets of the case endpoint-is-cluster-ip while the gateway sends packets for cluster IPs back to node1, as in a
// network that routes them to nodes: the gateway must not see one. Then a client sends a datagram to a Service with the address of
// that Service as its source: it must not reach the endpoint, whose answer would go to the Service again, for ever.
func Loops(t *testing.T, dir string, open Open) {
	b := NewBench(t, open)
	for _, name := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		if err := b.Lab.Gateway.SetSysctl(name, "1"); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Lab.Gateway.RouteVia(b.Lab.Node1.Host, routed...); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases.Named(t, dir, "endpoint-is-cluster-ip") {
		family, echo := netns.IPv4, netip.MustParseAddrPort("10.96.0.12:53")
		if c.Family == cluster.IPv6 {
			family, echo = netns.IPv6, netip.MustParseAddrPort("[fd00:10:96::c]:53")
		}
		b.Sync(t, c.Plan())
		before := forwarded(t, b.Lab.Gateway, family)
		b.Ask(t, c)
		if n := forwarded(t, b.Lab.Gateway, family) - before; n > 0 {
			t.Errorf("%s: the gateway forwarded %d packets", c.Name, n)
		}
		endpoint := b.Lab.Node1.Pods[0]
		heard := received(t, endpoint, family)
		forge(t, b.Lab.Client, echo)
		time.Sleep(300 * time.Millisecond) // a loop has thousands of packets by then
		if n := received(t, endpoint, family) - heard; n > 0 {
			t.Errorf("%s: the endpoint received %d datagrams", c.Name, n)
		}
	}
}

// forwarded returns the number of packets that a host has routed.
func forwarded(t *testing.T, host *netns.Host, family netns.Family) int {
	if family == netns.IPv6 {
		return counter(t, host, "Ip6OutForwDatagrams")
	}
	return counter(t, host, "IpForwDatagrams")
}

// received returns the number of UDP datagrams that the sockets of a host have received.
func received(t *testing.T, host *netns.Host, family netns.Family) int {
	if family == netns.IPv6 {
		return counter(t, host, "Udp6InDatagrams")
	}
	return counter(t, host, "UdpInDatagrams")
}

// counter returns one of the kernel's counters.
func counter(t *testing.T, host *netns.Host, name string) int {
	t.Helper()
	out, err := host.Command("nstat", "-asz", name).Output()
	fields := strings.Fields(string(out))
	for i, field := range fields {
		if field == name && err == nil && i+1 < len(fields) {
			if n, err := strconv.Atoi(fields[i+1]); err == nil {
				return n
			}
		}
	}
	t.Fatalf("nstat %s: %v: %s", name, err, out)
	return 0
}

// forge sends a UDP datagram from an address and port to the same address and port.
func forge(t *testing.T, host *netns.Host, self netip.AddrPort) {
	t.Helper()
	const text = "again"
	udp := binary.BigEndian.AppendUint16(nil, self.Port())
	udp = binary.BigEndian.AppendUint16(udp, self.Port())
	udp = append(append(udp, 0, 8+byte(len(text)), 0, 0), text...)
	sendRaw(t, host, self.Addr(), slices.Values([][]byte{packet(unix.IPPROTO_UDP, self.Addr(), self.Addr(), udp, 6)}))
}
