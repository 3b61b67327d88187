package nft_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
)

// TestKernelBusyKernel simulates a kernel that does not answer because another process holds its lock: the caller must get an
// error when its context ends, and the next request must wait for the previous one.
func TestKernelBusyKernel(t *testing.T) {
	table := loaded(t)
	hold, held := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-held
		cancel()
	}()
	finished, err := table.Do(ctx, func() error {
		close(held)
		<-hold
		return nil
	})
	if finished || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "may still take effect") {
		t.Errorf("a request that hangs: finished %v, %v", finished, err)
	}
	b := table.NewBatch()
	b.Delete("services", frontendKey(1))
	if err := table.Commit(ctx, b); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "still busy") {
		t.Errorf("a request while another hangs: %v", err)
	}
	close(hold)
	// The batch is intact, and the socket works.
	if err := table.Commit(t.Context(), b); err != nil {
		t.Error(err)
	}
}

// TestKernelAbandonedDump abandons a dump: the next request must ignore its remaining messages.
func TestKernelAbandonedDump(t *testing.T) {
	table := loaded(t)
	b := table.NewBatch()
	for i := range 3000 {
		b.Add("endpoints", &nf.Element{Key: slotKey(100+i, 0), Value: endpointValue(i)})
	}
	if err := table.Commit(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	stop := errors.New("enough")
	err := table.Dump(nf.Query{Command: unix.NFT_MSG_GETSETELEM, Family: nf.IPv4, Table: table.Name(), Name: "endpoints"},
		func(netlink.Message) error { return stop })
	if !errors.Is(err, stop) {
		t.Fatal(err)
	}
	if o, err := table.Objects(t.Context()); err != nil || len(o.Sets) != 9 {
		t.Errorf("%d sets, %v", len(o.Sets), err)
	}
	n := 0
	for _, err := range table.Elements(t.Context(), "endpoints") {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 3002 {
		t.Errorf("read %d elements", n)
	}
}

// TestKernelLargeBatch sends more than fits the socket's initial send buffer.
func TestKernelLargeBatch(t *testing.T) {
	table := openKernel(t, nf.IPv6)
	mustRun(t, table, text(func(tx *nft.Transaction) {
		tx.Add(&knftables.Table{})
		tx.Add(&knftables.Map{Name: "endpoints", TypeOf: "ip6 daddr . meta l4proto . th dport . numgen random mod 2 : ip6 daddr . th dport"})
	}))
	b := table.NewBatch()
	comment := strings.Repeat("x", 127)
	const n = 15_000
	for i := range n {
		key := make([]byte, 28)
		key[0], key[1], key[2] = 0xfd, byte(i>>8), byte(i)
		b.Add("endpoints", &nf.Element{Key: key, Value: key[:20], Comment: comment})
	}
	if len(b.Bytes()) < 2*(1<<20) {
		t.Fatalf("the batch has %d bytes only", len(b.Bytes()))
	}
	if err := table.Commit(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if o, err := table.Objects(t.Context()); err != nil {
		t.Error(err)
	} else if set := o.Sets[0]; set.Count != n && set.Count != -1 {
		t.Errorf("%d elements, want %d", set.Count, n)
	}
}
