package nf

import (
	"hash/maphash"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// TestSummaryOf checks which dumps are equal.
func TestSummaryOf(t *testing.T) {
	seed := maphash.MakeSeed()
	element := func(e Element) []byte {
		b, elem := netlink.BeginNest(nil, unix.NFTA_LIST_ELEM)
		b = AppendData(b, unix.NFTA_SET_ELEM_KEY, e.Key)
		if e.Value != nil {
			b = AppendData(b, unix.NFTA_SET_ELEM_DATA, e.Value)
		}
		b = netlink.AppendBytes(b, unix.NFTA_SET_ELEM_EXPR, []byte{byte(e.Packets)})
		b = netlink.AppendBytes(b, unix.NFTA_SET_ELEM_USERDATA, []byte(e.Comment))
		netlink.EndNest(b, elem)
		return b
	}
	key, key2 := frontendKey(1), frontendKey(2)
	a, b := element(Element{Key: key, Value: key, Comment: "c"}), element(Element{Key: key2})
	whole := summaryOf(seed, [][]byte{a, b})
	for _, same := range [][][]byte{
		{b, a},
		{slices.Concat(b, a)},
		{a, element(Element{Key: key2, Packets: 1})},
	} {
		if got := summaryOf(seed, same); got != whole {
			t.Errorf("%x: %v, want %v", same, got, whole)
		}
	}
	for _, differs := range [][][]byte{
		{},
		{a},
		{a, b, b},
		{a, element(Element{Key: key})},
		{b, element(Element{Key: key, Value: key2, Comment: "c"})},
		{b, element(Element{Key: key, Value: key, Comment: "d"})},
		{b, element(Element{Key: key, Comment: "c"})},
	} {
		if got := summaryOf(seed, differs); got == whole {
			t.Errorf("%x: the same as %x, %x", differs, a, b)
		}
	}
}
