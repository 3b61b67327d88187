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

// cause is the reason for an audit.
type cause int

const (
	noCause cause = iota
	// unknownWrite means that other programs may have written any element; knownWrite that the elements they wrote are known.
	unknownWrite
	knownWrite
)

// watched is a table with the state of its comparison with what it should hold.
type watched struct {
	*family
	// audit is the current audit; abandoned are those that have not released their iterators yet. census is that of the state
	// whose elements were last counted.
	audit     *audit
	abandoned []*audit
	census    census
	// touched are the keys, by set, of the elements that other programs wrote since the last audit began; touches counts them.
	touched map[string]map[string]bool
	touches int
	// writer is the other program that wrote last, "" if that is not known.
	writer string
}

// writtenBy reports whether a transaction wrote the table.
func (w *watched) writtenBy(write nft.Write) bool {
	return slices.Contains(write.Tables, w.tableName())
}

func (w *watched) tableName() nft.TableName {
	return nft.TableName{Family: w.table.Family(), Name: w.table.Name()}
}

// audit compares the elements of a table with the desired ones, in parts. It looks up the desired elements, at a cost
// proportional to their number; the sizes of the sets show that there are no others, or looking up the keys that others wrote. What
// was written after it began is right anyway.
type audit struct {
	// begun reports that the sizes have been compared, or need not be; next returns the remaining elements.
	begun bool
	next  func() (*set, element, bool)
	stop  func()
	// undesired are the keys, by set, that others wrote and that none of the elements so far has. It is nil if all elements are compared.
	undesired map[string]map[string]bool
}

// maxTouched limits the number of elements that are remembered.
const maxTouched = 10_000

// touch notes an element that another program wrote. It returns false if there are too many.
func (w *watched) touch(e nft.WrittenElement) bool {
	if e.Table != w.tableName() {
		return true
	}
	if w.touched == nil {
		w.touched = map[string]map[string]bool{}
	}
	if w.touched[e.Set] == nil {
		w.touched[e.Set] = map[string]bool{}
	}
	if !w.touched[e.Set][e.Key] {
		w.touched[e.Set][e.Key] = true
		w.touches++
	}
	return w.touches <= maxTouched
}

// beginAudit starts an audit if the desired content is known: of all elements, or of those that others are known to have
// written.
func (w *watched) beginAudit(of cause) {
	w.endAudit()
	if w.have != nil {
		w.audit = &audit{}
		all := w.schema.elements(&w.have.holds.content)
		if of == knownWrite {
			w.audit.begun, w.audit.undesired = true, w.touched
			all = take(all, w.touched)
		}
		w.audit.next, w.audit.stop = iter.Pull2(all)
	}
	w.touched, w.touches = nil, 0
}

// take yields the elements that have one of the keys, by set, and removes their keys.
func take(all iter.Seq2[*set, element], keys map[string]map[string]bool) iter.Seq2[*set, element] {
	return func(yield func(*set, element) bool) {
		var in space
		for s, e := range all {
			if len(keys[s.name]) == 0 {
				continue
			}
			key := string(s.encode(&e, &in).Key)
			if !keys[s.name][key] {
				continue
			}
			delete(keys[s.name], key)
			if !yield(s, e) {
				return
			}
		}
	}
}

// endAudit ends the current audit. The next check releases its iterator: package iter does not allow that on a thread that was locked
// since the iterator began, and a Sync locks its own.
func (w *watched) endAudit() {
	if w.audit != nil {
		w.abandoned = append(w.abandoned, w.audit)
	}
	w.audit = nil
}

// release releases the iterators of audits that were ended.
func (w *watched) release() {
	for _, a := range w.abandoned {
		a.stop()
	}
	w.abandoned = nil
}

// part returns the next elements by set, and whether they are the last ones.
func (a *audit) part(most int) (parts map[*set][]element, last bool) {
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
	var mend []altered
	var err error
	if !w.audit.begun {
		wrong, err = w.sized(ctx, true)
		w.audit.begun = wrong == nil && err == nil
	}
	if w.audit.begun {
		wrong, mend, err = w.comparePart(ctx, most)
	}
	if err != nil || wrong == nil {
		return err
	}
	drift := backend.Drift{What: "its elements", Details: wrong}
	if mend != nil && len(w.altered)+len(mend) <= maxTransaction {
		w.altered = append(w.altered, mend...)
		*drifts = append(*drifts, w.described(drift))
		return nil
	}
	w.drifted(drifts, drift)
	return nil
}

// drifted makes the next Sync read the table.
func (w *watched) drifted(drifts *[]backend.Drift, found backend.Drift) {
	w.have, w.altered = nil, nil
	w.endAudit()
	*drifts = append(*drifts, w.described(found))
}

// described adds to a drift what is the same for all of a table.
func (w *watched) described(found backend.Drift) backend.Drift {
	found.Family, found.Writer = w.schema.family, w.writer
	return found
}

// comparePart compares the next elements, and describes those that are wrong; nil is none. mend says that the next Sync can
// write these alone: none is missing, so that there is no other one instead.
func (w *watched) comparePart(ctx context.Context, most int) (details []string, mend []altered, _ error) {
	parts, last := w.audit.part(most)
	if last {
		defer w.endAudit()
	}
	all := true
	for s, part := range parts {
		missing, other, err := w.wrong(ctx, s, part)
		if err != nil {
			return nil, nil, err
		}
		note := func(wrong []element, is bool) {
			for _, e := range wrong {
				if s.unchanged(&w.have.holds.content, &e) {
					details, mend, all = append(details, s.title()+" lacked "+s.text(&e)), append(mend, altered{s, e}), all && is
				}
			}
		}
		note(missing, false)
		note(other, true)
	}
	if last {
		foreign, err := w.foreign(ctx, w.audit.undesired)
		if err != nil {
			return nil, nil, err
		}
		details, all = append(details, foreign...), all && foreign == nil
	}
	slices.Sort(details)
	if !all {
		mend = nil
	}
	return firstOf(details), mend, nil
}

// foreign describes the elements with one of these keys, by set, that exist and are not desired.
func (w *watched) foreign(ctx context.Context, keys map[string]map[string]bool) (details []string, _ error) {
	exist := map[string]map[string]bool{}
	for name, of := range keys {
		if w.schema.named(name) == nil { // packets write its elements, or compareShape finds it
			continue
		}
		exist[name] = map[string]bool{}
		for found, err := range w.table.Find(ctx, name, func(yield func([]byte) bool) {
			for key := range of {
				if !yield([]byte(key)) {
					return
				}
			}
		}) {
			if err != nil {
				return nil, err
			}
			exist[name][string(found.Key)] = true
		}
	}
	for range take(w.schema.elements(&w.have.holds.content), exist) { // a Sync has written it since
	}
	for name, of := range exist {
		for key := range of {
			details = append(details, w.schema.named(name).title()+" had "+w.schema.named(name).keyText([]byte(key)))
		}
	}
	return details, nil
}

// wrong returns the elements of a set that are missing, and those that have another value. Comments are ignored because
// packets do not depend on them.
func (w *watched) wrong(ctx context.Context, s *set, part []element) (missing, other []element, _ error) {
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
			return nil, nil, err
		}
		for ; at < len(part) && !bytes.Equal(wants[at].Key, found.Key); at++ {
			missing = append(missing, part[at])
		}
		if at == len(part) {
			return nil, nil, fmt.Errorf("find elements of %s: %x was not asked for", s.name, found.Key)
		}
		if !bytes.Equal(wants[at].Value, found.Value) || wants[at].Chain != found.Chain {
			other = append(other, part[at])
		}
		at++
	}
	return append(missing, part[at:]...), other, nil
}

// sized describes the sets that do not have the right number of elements; nil if all have. If the kernel does not report it
// (before 6.18 or so), sets are read if dump is set, up to a size that takes about 0.2 s; others are assumed to be right.
func (w *watched) sized(ctx context.Context, dump bool) (details []string, _ error) {
	objects, err := w.table.Objects(ctx)
	if err != nil {
		return nil, err
	}
	want := w.census.take(w.have.holds)
	for _, found := range objects.Sets {
		if _, clients := parseClients(found.Name); clients {
			continue // packets write its elements
		}
		size := found.Count
		if size < 0 {
			if !dump || want[found.Name] > largeSet {
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
