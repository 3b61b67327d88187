package backend

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

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
