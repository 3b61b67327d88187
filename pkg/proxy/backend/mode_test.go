package backend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// fakeMode is a Mode in which the backend cannot be opened for some families.
type fakeMode struct {
	Mode
	broken []cluster.Family
}

func (m fakeMode) Open(_ context.Context, families ...cluster.Family) (Backend, error) {
	for _, family := range families {
		if slices.Contains(m.broken, family) {
			return nil, fmt.Errorf("%s does not work", family)
		}
	}
	return struct{ Backend }{}, nil
}

// TestAwaitUsable checks that a family that was left out is tried again, less and less often, until it works.
func TestAwaitUsable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := &countingMode{failures: 3}
		began := time.Now()
		if !AwaitUsable(t.Context(), broken, cluster.IPv6) || broken.failures != 0 {
			t.Errorf("%d attempts are left", broken.failures)
		}
		if took := time.Since(began); took != (5+10+20+40)*time.Second {
			t.Errorf("it took %s", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		broken.failures = 1 << 20
		if AwaitUsable(ctx, broken, cluster.IPv6) {
			t.Error("a family that never works was opened")
		}
		if tries := 1<<20 - broken.failures; tries > 20 {
			t.Errorf("%d attempts in an hour", tries)
		}
	})
}

// countingMode fails to open some times.
type countingMode struct {
	Mode
	failures int
}

func (m *countingMode) Open(context.Context, ...cluster.Family) (Backend, error) {
	if m.failures == 0 {
		return closed{}, nil
	}
	m.failures--
	return nil, errors.New("not yet")
}

// closed is a Backend that can only be closed.
type closed struct{ Backend }

func (closed) Close() error { return nil }

// TestOpenUsable checks that a family that does not work is left out if that is allowed.
func TestOpenUsable(t *testing.T) {
	both := []cluster.Family{cluster.IPv4, cluster.IPv6}
	for _, test := range []struct {
		name          string
		required      bool
		firstRequired bool
		broken        []cluster.Family
		want          []cluster.Family // nil is an error
	}{
		{"both work", false, false, nil, both},
		{"the second does not work", false, false, both[1:], both[:1]},
		{"the first does not work", false, false, both[:1], both[1:]},
		{"the second does not work and is required", true, false, both[1:], nil},
		{"the primary one does not work", false, true, both[:1], nil},
		{"the secondary one does not work", false, true, both[1:], both[:1]},
		{"none works", false, false, both, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			wanted := Families{All: both, Required: test.required, FirstRequired: test.firstRequired}
			opened, families, leftOut, err := OpenUsable(t.Context(), fakeMode{broken: test.broken}, wanted)
			switch {
			case test.want == nil && (err == nil || !strings.Contains(err.Error(), test.broken[0].String()+" does not work")):
				t.Errorf("got %v, %v", opened, err)
			case test.want != nil && (err != nil || opened == nil || !slices.Equal(families, test.want)):
				t.Errorf("opened for %v, %v; want %v", families, err, test.want)
			case test.want != nil && (leftOut != nil) != (len(test.want) < len(both)):
				t.Errorf("left out because of: %v", leftOut)
			}
		})
	}
}
