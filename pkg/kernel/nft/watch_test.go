package nft

import (
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// TestWatchInTheMiddle begins a subscription while the kernel sends the messages of a transaction: the rest of them is not reported
// as a whole transaction, the next one is.
func TestWatchInTheMiddle(t *testing.T) {
	message := func(command int, family byte, attr func(b []byte) []byte) netlink.Message {
		b := attr(netlink.AppendMessage(nil, netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | uint16(command), Family: family}))
		netlink.EndMessage(b, 0)
		all := netlink.ReadMessages(b)
		if !all.Next() {
			t.Fatal("the message cannot be read")
		}
		return all.Message
	}
	chain := func(table string) netlink.Message {
		return message(unix.NFT_MSG_NEWCHAIN, unix.NFPROTO_IPV4, func(b []byte) []byte {
			return netlink.AppendString(b, unix.NFTA_CHAIN_TABLE, table)
		})
	}
	end := func(generation uint32) netlink.Message {
		return message(unix.NFT_MSG_NEWGEN, unix.AF_UNSPEC, func(b []byte) []byte {
			return netlink.AppendUint32(b, unix.NFTA_GEN_ID, generation)
		})
	}
	w := &kernelWatcher{begun: 1<<32 - 1}
	var got []Write
	for _, m := range []netlink.Message{chain("rest"), end(1<<32 - 1), chain("first"), chain("second"), end(1)} {
		if write := w.add(m); write != nil {
			got = append(got, *write)
		}
	}
	want := []Write{{Generation: 1, Tables: []TableName{{knftables.IPv4Family, "first"}, {knftables.IPv4Family, "second"}}}}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
