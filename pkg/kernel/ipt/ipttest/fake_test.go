package ipttest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
)

// TestFakeKeepsCounters checks that rules that are not rewritten keep their counters.
func TestFakeKeepsCounters(t *testing.T) {
	fake := New(ipt.IPv4, ipt.NFT)
	restore := func(input string) {
		t.Helper()
		if err := fake.Restore(context.Background(), "*nat\n"+input+"COMMIT\n"); err != nil {
			t.Fatal(err)
		}
	}
	restore(":A - [0:0]\n:B - [0:0]\n-A A -j B\n-A B -j RETURN\n")
	fake.Count("nat", "A", "-j B", 7)
	fake.Count("nat", "B", "RETURN", 5)
	restore(":B - [0:0]\n-A B -p tcp -j RETURN\n-A A -j RETURN\n")
	text, err := fake.Save(context.Background(), "nat")
	if err != nil || !strings.Contains(text, "[7:0] -A A -j B\n") || !strings.Contains(text, "[0:0] -A B -p tcp -j RETURN\n") {
		t.Errorf("%v; the table is\n%s", err, text)
	}
}

// TestFakeCompareEnds checks that a canceled context is an error, as with the kernel's tables, and a deadline is not.
func TestFakeCompareEnds(t *testing.T) {
	fake := New(ipt.IPv4, ipt.NFT)
	compare := func(ctx context.Context) error {
		_, err := fake.Compare(ctx, "nat", func(string) ([]ipt.Rule, bool) { return nil, true })
		return err
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := compare(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("with a canceled context: %v", err)
	}
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	if err := compare(late); err != nil {
		t.Errorf("after a deadline: %v", err)
	}
}
