//go:build linux

package trace

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// message builds a message of nf_tables.
func message(t *testing.T, command int, family byte, build func([]byte) []byte) netlink.Message {
	t.Helper()
	b := build(netlink.AppendMessage(nil, netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | uint16(command), Family: family}))
	netlink.EndMessage(b, 0)
	m := netlink.ReadMessages(b)
	if !m.Next() {
		t.Fatal("no message")
	}
	return m.Message
}

// TestDecode decodes messages that are cut off or of another kind.
func TestDecode(t *testing.T) {
	d := decoder{2: "eth0"}
	udp := append([]byte{0x60, 0, 0, 0, 0, 0, unix.IPPROTO_UDP, 64}, make([]byte, 32)...)
	udp[23], udp[39] = 1, 2
	build := func(network, transport []byte) netlink.Message {
		return message(t, unix.NFT_MSG_TRACE, unix.NFPROTO_INET, func(b []byte) []byte {
			b = netlink.AppendUint32(b, unix.NFTA_TRACE_ID, 7)
			b = netlink.AppendUint32(b, unix.NFTA_TRACE_TYPE, uint32(Policy))
			b = netlink.AppendString(b, unix.NFTA_TRACE_TABLE, "firewalld")
			b = netlink.AppendString(b, unix.NFTA_TRACE_CHAIN, "input")
			b = netlink.AppendUint32(b, unix.NFTA_TRACE_POLICY, 0)
			b = netlink.AppendUint32(b, unix.NFTA_TRACE_NFPROTO, unix.NFPROTO_IPV6)
			b = netlink.AppendUint32(b, unix.NFTA_TRACE_IIF, 2)
			b = netlink.AppendUint32(b, unix.NFTA_TRACE_OIF, 1<<30)
			b = netlink.AppendBytes(b, unix.NFTA_TRACE_NETWORK_HEADER, network)
			return netlink.AppendBytes(b, unix.NFTA_TRACE_TRANSPORT_HEADER, transport)
		})
	}
	for _, test := range []struct {
		network, transport []byte
		want               string
	}{
		{udp, []byte{0, 53, 1, 0, 0, 0, 0, 0}, "{17 [::1]:53 [::2]:256 0 eth0 interface 1073741824 0}"},
		{udp, []byte{0, 53}, "{17 [::1]:0 [::2]:0 0 eth0 interface 1073741824 0}"},
		{udp[:39], []byte{0, 53, 1, 0}, "none"},
		{nil, nil, "none"},
	} {
		e, ok := d.decode(build(test.network, test.transport))
		got := "none"
		if e.Headers != nil {
			got = fmt.Sprint(*e.Headers)
		}
		e.Headers = nil
		want := Event{Packet: 7, Kind: Policy, Family: "inet", Table: "firewalld", Chain: "input", Verdict: "drop"}
		if !ok || e != want || got != test.want {
			t.Errorf("%x %x: %+v with headers %s, want %s", test.network, test.transport, e, got, test.want)
		}
	}
	for name, m := range map[string]netlink.Message{
		"another message": message(t, unix.NFT_MSG_NEWRULE, 2, func(b []byte) []byte { return b }),
		"no chain":        message(t, unix.NFT_MSG_TRACE, 2, func(b []byte) []byte { return netlink.AppendString(b, unix.NFTA_TRACE_TABLE, "t") }),
		"a short number":  message(t, unix.NFT_MSG_TRACE, 2, func(b []byte) []byte { return netlink.AppendBytes(b, unix.NFTA_TRACE_ID, []byte{1}) }),
	} {
		if e, ok := d.decode(m); ok {
			t.Errorf("%s: %+v", name, e)
		}
	}
	for code, want := range map[int32]string{unix.NFT_JUMP: "jump", 0: "drop", 1 << 16: "drop", 3 | 5<<16: "queue", -99: "verdict -99"} {
		if got := verdictName(code); got != want {
			t.Errorf("verdict %d is %s, want %s", code, got, want)
		}
	}
}
