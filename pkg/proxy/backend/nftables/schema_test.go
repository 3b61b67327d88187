package nftables

import (
	"errors"
	"slices"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/cases"
)

// plansWithEachSet returns, for each set of a schema, the plan of a case for which it has an element.
func plansWithEachSet(t *testing.T, s *schema) map[*set]*plan.Plan {
	t.Helper()
	found := map[*set]*plan.Plan{}
	for _, c := range cases.Named(t, "../../../../test/cases", "") {
		p := c.Plan()
		want := render(p, testOptions, nothing(s))
		for set := range s.elements(&want.content) {
			found[set] = p
		}
	}
	for _, set := range s.sets {
		if found[set] == nil {
			t.Fatalf("no case has an element in the set %s: write one in test/cases", set.name)
		}
	}
	return found
}

// TestEverySetDecodes decodes what is written to each set, and checks that other bytes are refused.
func TestEverySetDecodes(t *testing.T) {
	b, _ := fakes()
	for _, f := range b.families {
		for set, p := range plansWithEachSet(t, f.schema) {
			want := render(p, testOptions, nothing(f.schema))
			for of, e := range f.schema.elements(&want.content) {
				if of != set {
					continue
				}
				raw := set.encode(&e, new(buffer))
				if got, err := set.decode(&raw, new(buffer)); err != nil || *got != e {
					t.Fatalf("%s, %s: %+v parsed as %+v, %v", f.schema.family, set.name, e, got, err)
				}
				long, short := raw, raw
				long.Key = slices.Concat(raw.Key, []byte{0, 0, 0, 0})
				short.Key = raw.Key[:len(raw.Key)-4]
				for _, other := range []nf.Element{long, short} {
					if got, err := set.decode(&other, new(buffer)); err == nil {
						t.Fatalf("%s, %s: key %x parsed as %+v", f.schema.family, set.name, other.Key, got)
					}
				}
			}
		}
	}
}

// TestEverySetIsAudited removes an element from each set externally, and adds an unknown one: Check finds it, and the
// next Sync repairs it.
func TestEverySetIsAudited(t *testing.T) {
	b, table := oneFake()
	for set, p := range plansWithEachSet(t, b.families[0].schema) {
		for name, tamper := range map[string]func() error{
			"delete": func() error { return table.External().DeleteElement(set.name, firstKey(t, table, set.name)) },
			"replace": func() error {
				key := firstKey(t, table, set.name)
				strange := nf.Element{Key: make([]byte, len(key)), Value: make([]byte, valueLen(set))}
				if set.verdict {
					strange.Chain = chainLayout
				}
				return errors.Join(table.External().DeleteElement(set.name, key), table.External().AddElement(set.name, &strange))
			},
		} {
			mustSync(t, b, p)
			untilRested(t, b, func() {})
			if err := tamper(); err != nil {
				t.Fatalf("%s of %s: %v", name, set.name, err)
			}
			if drifts, _ := untilRested(t, b, func() {}); len(drifts) != 1 {
				t.Errorf("%s of %s: Check returns %v, want one drift", name, set.name, drifts)
			}
			mustSync(t, b, p)
			holds(t, b, p)
		}
	}
}

// valueLen returns the number of bytes of a set's values.
func valueLen(s *set) (n int) {
	for _, c := range s.value {
		n += c.width
	}
	return n
}
