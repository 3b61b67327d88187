package backend

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCompareChain compares rules that differ, that are in another order, and that are written differently.
func TestCompareChain(t *testing.T) {
	for name, test := range map[string]struct {
		have string
		want *Difference
	}{
		"equal":           {"a b c", nil},
		"written in caps": {"A b C", nil},
		"one is missing":  {"a c", &Difference{Missing: []string{"b"}}},
		"one is twice":    {"b a b c", &Difference{Extra: []string{"b"}}},
		"another order":   {"b a c", &Difference{Note: "Its rules are in another order."}},
		"empty":           {"", &Difference{Missing: []string{"a", "b", "c"}}},
	} {
		d, differs := CompareChain("chain x", strings.Fields("a b c"), strings.Fields(test.have), strings.ToLower)
		if !differs || test.want == nil {
			if differs != (test.want != nil) {
				t.Errorf("%s: differs is %v", name, differs)
			}
			continue
		}
		test.want.Object = "chain x"
		if diff := cmp.Diff(*test.want, d); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
