package ipt

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// TestUnansweredBatch restores inputs while the kernel has not finished a batch whose caller has given up: neither a batch nor a
// program may write before it, and the error names the kernel, not a program. Afterwards inputs are written again.
func TestUnansweredBatch(t *testing.T) {
	d, err := openDirect(IPv4)
	if err != nil {
		t.Fatal(err)
	}
	tables := &kernelTables{family: IPv4, direct: d, programs: programs{restore: "true"}}
	defer func() { _ = d.close() }()
	short := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	ctx, cancel := context.WithCancel(t.Context())
	release := make(chan struct{})
	if finished, _ := d.conn.Do(ctx, func() error { cancel(); <-release; return nil }); finished {
		t.Fatal("the batch has finished")
	}
	for _, input := range []string{"*nat\n:KUBE-A - [0:0]\nCOMMIT\n", "*filter\n-A INPUT -j DROP\nCOMMIT\n"} {
		err := tables.Restore(short(), input)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "the kernel is still busy") {
			t.Errorf("%q: %v", input, err)
		}
	}
	close(release)
	if err := tables.Restore(t.Context(), "*filter\n-A INPUT -j DROP\nCOMMIT\n"); err != nil {
		t.Error(err)
	}
}
