package conntrack_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/conntrack"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/conntrack/conntracktest"
)

// TestFake applies to the fake the checks that TestKernelSweep applies to the kernel.
func TestFake(t *testing.T) {
	f := &conntracktest.Fake{}
	sweepAlike(t, f, func(flow conntrack.Flow) {
		if err := f.Add(flow); err != nil {
			t.Fatal(err)
		}
	})
}

func TestFakeRefuses(t *testing.T) {
	f := &conntracktest.Fake{}
	if err := f.Add(toA); err != nil {
		t.Fatal(err)
	}
	mixed := toB
	mixed.Destination = toB6.Destination
	for _, test := range []struct {
		flow conntrack.Flow
		want error
	}{
		{toA, unix.EEXIST},
		{mixed, unix.EINVAL},
		{conntrack.Flow{Source: toA.Source}, unix.EINVAL},
	} {
		if err := f.Add(test.flow); !errors.Is(err, test.want) {
			t.Errorf("%v: got %v, want %v", test.flow, err, test.want)
		}
	}
	if _, err := f.Sweep(context.Background(), 4, conntrack.UDP, never); !errors.Is(err, unix.EINVAL) {
		t.Errorf("an unknown family: %v", err)
	}
}

func TestFakeFails(t *testing.T) {
	ctx := context.Background()
	f := &conntracktest.Fake{FailReads: 1, FailDeletes: 2, Interrupt: 1}
	for _, flow := range []conntrack.Flow{toA, toB, plain} {
		if err := f.Add(flow); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.Sweep(ctx, conntrack.IPv4, conntrack.UDP, all); !errors.Is(err, unix.ENOBUFS) {
		t.Errorf("the read does not fail: %v", err)
	}
	if got, err := f.Sweep(ctx, conntrack.IPv4, conntrack.UDP, never); got != (conntrack.Swept{Seen: 1, Partial: true}) || err != nil {
		t.Errorf("interrupted: %+v, %v", got, err)
	}
	got, err := f.Sweep(ctx, conntrack.IPv4, conntrack.UDP, all)
	if got != (conntrack.Swept{Seen: 3, Deleted: 1}) || !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), "10.0.0.1:1001 to 10.96.0.10:53") || !strings.Contains(err.Error(), "10.0.0.1:1002 to 10.96.0.10:53") {
		t.Errorf("two deletions fail: %+v, %v", got, err)
	}
	if got, err := f.Sweep(ctx, conntrack.IPv4, conntrack.UDP, all); got != (conntrack.Swept{Seen: 2, Deleted: 2}) || err != nil {
		t.Errorf("afterwards: %+v, %v", got, err)
	}
	if f.Sweeps != 4 || len(f.Flows()) != 0 {
		t.Errorf("%d sweeps, %v", f.Sweeps, f.Flows())
	}
}
