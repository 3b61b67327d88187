//go:build linux

package nf

import (
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// message returns a notification.
func message(t *testing.T, command int, family byte, attr func(b []byte) []byte) netlink.Message {
	t.Helper()
	b := attr(netlink.AppendMessage(nil, netlink.Header{Type: uint16(unix.NFNL_SUBSYS_NFTABLES<<8 | command), Family: family}))
	netlink.EndMessage(b, 0)
	all := netlink.ReadMessages(b)
	if !all.Next() {
		t.Fatal("the message cannot be read")
	}
	return all.Message
}

func chainOf(t *testing.T, table string) netlink.Message {
	t.Helper()
	return message(t, unix.NFT_MSG_NEWCHAIN, unix.NFPROTO_IPV4, func(b []byte) []byte {
		return netlink.AppendString(netlink.AppendString(b, unix.NFTA_CHAIN_TABLE, table), unix.NFTA_CHAIN_NAME, "c")
	})
}

func endOf(t *testing.T, generation uint32) netlink.Message {
	t.Helper()
	return message(t, unix.NFT_MSG_NEWGEN, unix.AF_UNSPEC, func(b []byte) []byte {
		return netlink.AppendUint32(b, unix.NFTA_GEN_ID, generation)
	})
}

// TestWatchInTheMiddle becomes a member at the last generation before the number begins again, while the kernel sends the messages of
// a transaction: this one may be missed, as one is whose end does not come. The numbers have no gap at 0.
func TestWatchInTheMiddle(t *testing.T) {
	in := func(table string) Object {
		return Object{Table: TableName{unix.NFPROTO_IPV4, table}, Kind: ChainObject, Name: "c"}
	}
	for name, test := range map[string]struct {
		messages []netlink.Message
		writes   []Write
		missed   bool
	}{
		"one that ended before": {[]netlink.Message{chainOf(t, "a"), endOf(t, 1<<32-2)}, nil, false},
		"one in progress":       {[]netlink.Message{endOf(t, 1<<32-1)}, nil, true},
		"the next one":          {[]netlink.Message{chainOf(t, "a"), chainOf(t, "a"), chainOf(t, "x"), chainOf(t, "b"), endOf(t, 1)}, []Write{{Objects: []Object{in("a"), in("b")}}}, false},
		"one without its end":   {[]netlink.Message{chainOf(t, "a"), endOf(t, 2)}, []Write{{Objects: []Object{in("a")}}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := &Watch{tables: map[TableName]bool{in("a").Table: true, in("b").Table: true}, last: 1<<32 - 1}
			for _, m := range test.messages {
				w.add(m)
			}
			if diff := gocmp.Diff(test.writes, w.writes); diff != "" || w.missed != test.missed {
				t.Errorf("missed %t; writes (-want +got):\n%s", w.missed, diff)
			}
		})
	}
}
