package nftables

import (
	"context"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
)

// auditShare bounds what comparing elements costs: an audit that took t is followed by none for this many times t, so that
// a node where others write nf_tables all the time spends at most 5 % on it.
const auditShare = 19

// auditPart is how many elements are compared at a time, in all families together: some 40 ms, which a change that comes
// just then has to wait.
const auditPart = 8192

// watch notices that others wrote nf_tables. It listens to no events, which would make the kernel describe
// every element of our own bulk loads; it compares the generation number, which costs about 6 µs.
type watch struct {
	// generation is the kernel's after our last write or look.
	generation nft.Generation
	// suspect tells that somebody wrote something since the last audit began.
	suspect bool
	// auditing tells that one is under way, which took spent so far; auditAfter is when the next may begin.
	auditing   bool
	spent      time.Duration
	auditAfter time.Time
}

// wrote takes note of a Sync of own transactions between two readings.
func (w *watch) wrote(before, after nft.Generation, own uint32) {
	if w.generation != 0 && before != w.generation || after.Since(before) != own {
		w.suspect = true
	}
	w.generation = after
}

// generation reads the kernel's generation; 0, which is never one, when that fails.
func (b *Backend) generation(ctx context.Context) nft.Generation {
	if len(b.families) == 0 {
		return 0
	}
	g, err := b.families[0].table.Generation(ctx)
	if err != nil {
		return 0
	}
	return g
}

// Check finds out whether somebody else changed our tables: at once where chains, rules or sets are concerned, or how many
// elements there are, and part by part, as soon as the cost of it allows, where it is what the elements say.
func (b *Backend) Check(ctx context.Context) ([]backend.Drift, error) {
	g := b.generation(ctx)
	if g == b.watch.generation && !b.watch.suspect && !b.watch.auditing {
		return nil, nil
	}
	var drifts []backend.Drift
	if g != b.watch.generation {
		b.watch.suspect = true
		for _, f := range b.families {
			if err := f.compareShape(ctx, &drifts); err != nil {
				return drifts, wrap(f.is, err)
			}
		}
		b.watch.generation = g
	}
	if len(drifts) > 0 {
		return drifts, nil
	}
	return b.auditOn(ctx)
}

// auditOn begins an audit where one is called for, and goes on with the one that is under way.
func (b *Backend) auditOn(ctx context.Context) (drifts []backend.Drift, _ error) {
	w, start := &b.watch, time.Now()
	if !w.auditing && (!w.suspect || start.Before(w.auditAfter)) {
		return nil, nil
	}
	done := true
	for _, f := range b.families {
		if !w.auditing {
			f.beginAudit()
		}
		if err := f.compareElements(ctx, auditPart/len(b.families), &drifts); err != nil {
			w.suspect = true // and the audit goes on with what comes next
			return drifts, wrap(f.is, err)
		}
		done = done && f.audit == nil
	}
	if !w.auditing {
		w.suspect, w.auditing, w.spent = false, true, 0
	}
	w.spent += time.Since(start)
	if done {
		w.auditing, w.auditAfter = false, time.Now().Add(auditShare*w.spent)
	}
	return drifts, nil
}

// compareShape compares all but what elements say: the skeleton, and how many elements there are.
func (f *family) compareShape(ctx context.Context, drifts *[]backend.Drift) error {
	if f.have == nil {
		return nil
	}
	fingerprint, err := f.table.Fingerprint(ctx, chainLayout)
	if err != nil {
		return err
	}
	if fingerprint != f.have.fingerprint {
		f.drifted(drifts, "its chains, rules or sets")
		return nil
	}
	right, err := f.sized(ctx, false)
	if err == nil && !right {
		f.drifted(drifts, "its elements")
	}
	return err
}

// compareElements goes on with the audit, if there is one, by so many elements.
func (f *family) compareElements(ctx context.Context, most int, drifts *[]backend.Drift) error {
	if f.audit == nil || f.have == nil { // the next Sync reads all anyway
		f.endAudit()
		return nil
	}
	right, err := f.auditPart(ctx, most)
	if err == nil && !right {
		f.drifted(drifts, "its elements")
	}
	return err
}

// drifted makes the next Sync read the table again.
func (f *family) drifted(drifts *[]backend.Drift, what string) {
	f.have = nil
	f.endAudit()
	*drifts = append(*drifts, backend.Drift{Family: f.is, What: what})
}
