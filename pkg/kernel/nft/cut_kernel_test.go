package nft

import (
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// TestKernelCutBatch sends only the first messages of a batch, for every number of them: without its end the kernel changes
// nothing, so that a process that is killed in the middle leaves whole transactions. The whole batch works afterwards.
func TestKernelCutBatch(t *testing.T) {
	table := loaded(t)
	b := table.NewBatch()
	b.AddChain("cut", "")
	b.Add("nodeports", &Element{Key: []byte{0x75, 0x31}})
	b.Delete("endpoints", slotKey(1, 0))
	before := nft(t, "list", "ruleset")
	first := table.socket.Reserve(b.messages + 1)
	data, last := b.finish(first)
	var ends []int
	for m := netlink.ReadMessages(data); m.Next(); {
		ends = append(ends, m.Offset)
	}
	if len(ends) < 5 {
		t.Fatalf("the batch has only %d messages", len(ends))
	}
	for _, end := range ends[1:] { // each is the offset of the first message that is not sent
		if _, _, err := table.socket.ExchangeBatch(data[:end], first, last); err != nil {
			t.Logf("%d of %d bytes: %v", end, len(data), err)
		}
		if after := nft(t, "list", "ruleset"); after != before {
			t.Fatalf("after %d of %d bytes of a batch:\n%s\nbefore:\n%s", end, len(data), after, before)
		}
	}
	t.Logf("%d messages: cut after each of the first %d", len(ends), len(ends)-1)
	if first, confirmed, err := table.socket.ExchangeBatch(data, first, last); err != nil || !confirmed || first.Errno != 0 {
		t.Fatalf("the whole batch: %v, %v, %v", first, confirmed, err)
	}
	if after := nft(t, "list", "ruleset"); after == before {
		t.Error("the whole batch changed nothing")
	}
}
