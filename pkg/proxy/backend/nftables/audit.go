package nftables

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
)

// watched is a table with the state of its comparison with what it should hold.
type watched struct {
	*family
	// audit is the current audit; census is that of the state whose elements were last counted.
	audit  *audit
	census census
}

// audit compares the elements of a table with the desired ones, in parts. It looks up the desired elements, at a cost
// proportional to their number; the sizes of the sets show that there are no others.
type audit struct {
	// of is the desired content when the audit began. What was written later is right anyway.
	of *desired
	// begun reports that the sizes have been compared; next returns the remaining elements.
	begun bool
	next  func() (*set, element, bool)
	stop  func()
}

// beginAudit starts an audit if the desired content is known.
func (w *watched) beginAudit() {
	w.endAudit()
	if w.have != nil {
		w.audit = &audit{of: w.have.holds}
		w.audit.next, w.audit.stop = iter.Pull2(w.schema.elements(&w.have.holds.content))
	}
}

func (w *watched) endAudit() {
	if w.audit != nil {
		w.audit.stop()
	}
	w.audit = nil
}

// take returns the next elements by set, and whether they are the last ones.
func (a *audit) take(most int) (parts map[*set][]element, last bool) {
	parts = map[*set][]element{}
	for range most {
		s, e, more := a.next()
		if !more {
			return parts, true
		}
		parts[s] = append(parts[s], e)
	}
	return parts, false
}

// compareShape compares everything except the values of elements: the skeleton, and the number of elements.
func (w *watched) compareShape(ctx context.Context, drifts *[]backend.Drift) error {
	if w.have == nil {
		return nil
	}
	fingerprint, objects, err := w.table.Fingerprint(ctx, chainLayout)
	if err != nil {
		return err
	}
	if fingerprint != w.have.fingerprint {
		w.drifted(drifts, backend.Drift{What: "its chains, rules or sets", Details: changedObjects(w.have.objects, objects), Rival: w.rival(ctx)})
		return nil
	}
	wrong, err := w.sized(ctx, false)
	if err == nil && wrong != nil {
		w.drifted(drifts, backend.Drift{What: "its elements", Details: wrong})
	}
	return err
}

// changedObjects describes the objects that differ.
func changedObjects(before, after map[string]string) (details []string) {
	for name, digest := range before {
		switch now, exists := after[name]; {
		case !exists:
			details = append(details, name+" was deleted")
		case now != digest:
			details = append(details, name+" was changed")
		}
	}
	for name := range after {
		if _, was := before[name]; !was {
			details = append(details, name+" was added")
		}
	}
	slices.Sort(details)
	return firstOf(details)
}

// firstOf limits the details of a drift.
func firstOf(details []string) []string { return details[:min(len(details), backend.MaxDetails)] }

// rival reports whether the table has chains that only another kube-proxy writes, with a Service's name.
func (w *watched) rival(ctx context.Context) bool {
	objects, err := w.table.Objects(ctx)
	return err == nil && slices.ContainsFunc(objects.Chains, func(c nft.Chain) bool { return strings.Contains(c.Name, "/") })
}

// compareElements continues the current audit by so many elements, and ends it with the last one.
func (w *watched) compareElements(ctx context.Context, most int, drifts *[]backend.Drift) error {
	if w.audit == nil || w.have == nil { // the next Sync reads the whole table
		w.endAudit()
		return nil
	}
	var wrong []string
	var err error
	if !w.audit.begun {
		wrong, err = w.sized(ctx, true)
		w.audit.begun = wrong == nil && err == nil
	}
	if w.audit.begun {
		wrong, err = w.comparePart(ctx, most)
	}
	if err == nil && wrong != nil {
		w.drifted(drifts, backend.Drift{What: "its elements", Details: wrong})
	}
	return err
}

// drifted makes the next Sync read the table.
func (w *watched) drifted(drifts *[]backend.Drift, found backend.Drift) {
	w.have = nil
	w.endAudit()
	found.Family = w.schema.family
	*drifts = append(*drifts, found)
}

// comparePart compares the next elements, and describes those that are wrong; nil is none.
func (w *watched) comparePart(ctx context.Context, most int) (details []string, _ error) {
	of := w.audit.of
	parts, last := w.audit.take(most)
	if last {
		defer w.endAudit()
	}
	for s, part := range parts {
		wrong, err := w.wrong(ctx, s, part)
		if err != nil {
			return nil, err
		}
		for _, e := range wrong {
			if s.unchanged(&of.content, &w.have.holds.content, &e) {
				details = append(details, s.title()+" lacked "+s.text(&e))
			}
		}
	}
	slices.Sort(details)
	return firstOf(details), nil
}

// wrong returns the elements of a set that are missing or have another value. Comments are ignored because packets do
// not depend on them.
func (w *watched) wrong(ctx context.Context, s *set, part []element) (wrong []element, _ error) {
	wants := make([]nft.Element, len(part))
	for i := range part {
		wants[i] = s.encode(&part[i], new(space))
	}
	keys := func(yield func([]byte) bool) {
		for i := range wants {
			if !yield(wants[i].Key) {
				return
			}
		}
	}
	at := 0
	for found, err := range w.table.Find(ctx, s.name, keys) {
		if err != nil {
			return nil, err
		}
		for ; at < len(part) && !bytes.Equal(wants[at].Key, found.Key); at++ {
			wrong = append(wrong, part[at])
		}
		if at == len(part) {
			return nil, fmt.Errorf("find elements of %s: %x was not asked for", s.name, found.Key)
		}
		if !bytes.Equal(wants[at].Value, found.Value) || wants[at].Chain != found.Chain {
			wrong = append(wrong, part[at])
		}
		at++
	}
	return append(wrong, part[at:]...), nil
}

// maxDumped is the size up to which a set is read to determine its size, if the kernel does not report it. That takes
// about 20 ms.
const maxDumped = 10_000

// sized describes the sets that do not have the right number of elements; nil if all have. If the kernel does not report it
// (before 6.18 or so), small sets are read if dump is set, and others are assumed to be right.
func (w *watched) sized(ctx context.Context, dump bool) (details []string, _ error) {
	objects, err := w.table.Objects(ctx)
	if err != nil {
		return nil, err
	}
	want := w.census.take(w.have.holds)
	for _, found := range objects.Sets {
		if _, clients := parseTimeout(found.Name); clients {
			continue // packets write its elements
		}
		size := found.Count
		if size < 0 {
			if !dump || want[found.Name] > maxDumped {
				continue
			}
			size = 0
			for _, err := range w.table.Elements(ctx, found.Name) {
				if err != nil {
					return nil, err
				}
				size++
			}
		}
		if size != want[found.Name] {
			details = append(details, fmt.Sprintf("set %s had %d elements instead of %d", found.Name, size, want[found.Name]))
		}
	}
	slices.Sort(details)
	return firstOf(details), nil
}

// census holds how many elements each set should have.
type census struct {
	of   *desired
	size map[string]int
}

// take counts the elements unless that was done for the same state: it takes milliseconds for 250,000 endpoints.
func (c *census) take(of *desired) map[string]int {
	if c.of == of {
		return c.size
	}
	*c = census{of, map[string]int{}}
	counts := map[*set]int{}
	for s := range of.schema.elements(&of.content) {
		counts[s]++
	}
	for s, n := range counts {
		c.size[s.name] = n
	}
	return c.size
}
