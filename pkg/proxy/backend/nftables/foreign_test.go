package nftables

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft/nfttest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// strange returns an element like the first of a set, with another address or protocol; nil if the set is empty.
func strange(t *testing.T, table nft.Table, set string) *nf.Element {
	t.Helper()
	for e, err := range table.Elements(t.Context(), set) {
		if err != nil {
			t.Fatal(err)
		}
		key := bytes.Clone(e.Key)
		key[0] ^= 0x60
		return &nf.Element{Key: key, Value: bytes.Clone(e.Value), Chain: e.Chain}
	}
	return nil
}

// found checks until all elements have been compared, and returns the details of what was found.
func found(t *testing.T, b *Backend) (details []string) {
	t.Helper()
	drifts, _ := untilRested(t, b, func() {})
	for _, drift := range drifts {
		details = append(details, drift.Details...)
	}
	return details
}

// TestForeignElements has another program add an element to each set, in both families, with sets that count and that do not, on
// kernels that report the sizes of sets and that do not. The notifications name its key, or are lost.
// The element is found, named, and removed.
func TestForeignElements(t *testing.T) {
	snapshot := clusters.WithExternalIPs(20)
	p := plan.Compute(snapshot, &plan.Options{}, nil)
	for _, family := range []nf.Family{nf.IPv4, nf.IPv6} {
		for _, counting := range []backend.Counting{backend.CountEndpoints, backend.CountNothing} {
			for _, sizes := range []bool{true, false} {
				for _, lost := range []bool{true, false} {
					t.Run(fmt.Sprintf("%s, counting %v, sizes %t, lost %t", family, counting, sizes, lost), func(t *testing.T) {
						fake := nfttest.New(family, TableName)
						options := testOptions
						options.Counters.Counting = counting
						b := newBackend(options, &hooked{Fake: fake, countless: !sizes})
						defer b.Close()
						mustSync(t, b, p)
						tried := 0
						for _, set := range b.families[0].schema.sets {
							element := strange(t, fake, set.name)
							if element == nil {
								continue
							}
							tried++
							if err := fake.External().AddElement(set.name, element); err != nil {
								t.Fatal(err)
							}
							if lost {
								lose(b)
							}
							if details := found(t, b); len(details) != 1 || !strings.Contains(details[0], " "+set.name+" ") {
								t.Fatalf("%s has a strange element; found %q", set.name, details)
							}
							mustSync(t, b, p)
							holds(t, b, p)
						}
						if tried < 2 {
							t.Errorf("only %d sets have elements", tried)
						}
					})
				}
			}
		}
	}
}

// TestForeignElementInLargeSet is the same with sets of more than 10,000 elements on a kernel that does not report their sizes, while
// our own Syncs add and remove elements that other programs write at the same time.
func TestForeignElementInLargeSet(t *testing.T) {
	fake := nfttest.New(nf.IPv4, TableName)
	b, c := newBackend(testOptions, &hooked{Fake: fake, countless: true}), clusters.NewSized(10_100, 1)
	defer b.Close()
	mustSync(t, b, c.Plan())
	for i, set := range []string{mapServices, mapEndpoints, setClusterIPs} {
		if err := fake.External().AddElement(set, strange(t, fake, set)); err != nil {
			t.Fatal(err)
		}
		if details := found(t, b); len(details) != 1 || !strings.Contains(details[0], " "+set+" ") {
			t.Fatalf("write %d, to %s: found %q", i, set, details)
		}
		mustSync(t, b, c.Plan())
	}
	holds(t, b, c.Plan())
	// An element that was another program's, and that we want before it is looked up, is right.
	early := &nf.Element{Key: clusters.AddrAt(172<<24, 10_100).AsSlice()}
	if err := fake.External().AddElement(setClusterIPs, early); err != nil {
		t.Fatal(err)
	}
	if err := fake.External().DeleteElement(setClusterIPs, early.Key); err != nil {
		t.Fatal(err)
	}
	c.Set(10_100, 1)
	mustSync(t, b, c.Plan())
	if details := found(t, b); details != nil {
		t.Errorf("nothing is wrong, but found %q", details)
	}
}
