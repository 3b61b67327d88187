package nftables

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
)

// auditShare bounds what comparing elements costs: an audit that took t is followed by none for this many times t, so that
// a node where others write nf_tables all the time spends at most 5 % on it.
const auditShare = 19

// auditPart is how many elements are compared at a time, in all families together: some 50 ms, which a change that comes
// just then has to wait.
const auditPart = 8192

// watch notices that others wrote nf_tables. It listens to no events, which would make the kernel describe
// every element of our own bulk loads; it compares the generation number, which costs about 6 µs.
type watch struct {
	// generation is the kernel's when the tables last had the shape that they should, and all since was our own; 0 before
	// they were read.
	generation nft.Generation
	// found are drifts that Check has not told of yet.
	found []backend.Drift
	// suspect tells that somebody wrote something since the last audit began.
	suspect bool
	// auditing tells that one is under way, which took spent so far; auditAfter is when the next may begin.
	auditing   bool
	spent      time.Duration
	auditAfter time.Time
}

// wrote takes note of a Sync of own transactions between two readings. Where others wrote too, the shape is to be looked at.
func (w *watch) wrote(before, after nft.Generation, own uint32) {
	if w.generation == 0 {
		w.generation = before // the Sync has read all that there was
	}
	if w.generation != before || after.Since(before) != own {
		w.suspect = true
		return
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
func (b *Backend) Check(ctx context.Context) (drifts []backend.Drift, _ error) {
	err := b.compareShapes(ctx, b.generation(ctx))
	drifts, b.watch.found = b.watch.found, nil
	if err != nil || len(drifts) > 0 {
		return drifts, err
	}
	return b.auditOn(ctx)
}

// compareShapes compares all but what elements say, if others wrote since that was last done.
func (b *Backend) compareShapes(ctx context.Context, now nft.Generation) error {
	if now == b.watch.generation || b.watch.generation == 0 {
		return nil
	}
	b.watch.suspect = true
	for _, f := range b.families {
		if err := f.compareShape(ctx, &b.watch.found); err != nil {
			return wrap(f.is, err)
		}
	}
	b.watch.generation = now
	return nil
}

// auditOn begins an audit where one is called for, and goes on with the one that is under way.
func (b *Backend) auditOn(ctx context.Context) (drifts []backend.Drift, err error) {
	w, start := &b.watch, time.Now()
	if !w.auditing {
		if !w.suspect || start.Before(w.auditAfter) {
			return nil, nil
		}
		w.suspect, w.auditing, w.spent = false, true, 0
		for _, f := range b.families {
			f.beginAudit()
		}
	}
	done := true
	for _, f := range b.families {
		if err = f.compareElements(ctx, auditPart/len(b.families), &drifts); err != nil {
			w.suspect, done, err = true, true, wrap(f.is, err) // another audit begins with all
			break
		}
		done = done && f.audit == nil
	}
	w.spent += time.Since(start)
	if done {
		w.auditing, w.auditAfter = false, time.Now().Add(auditShare*w.spent)
	}
	return drifts, err
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
		(*drifts)[len(*drifts)-1].Rival = f.rival(ctx)
		return nil
	}
	right, err := f.sized(ctx, false)
	if err == nil && !right {
		f.drifted(drifts, "its elements")
	}
	return err
}

// rival reports whether the table has chains as only another kube-proxy writes them, named by a Service.
func (f *family) rival(ctx context.Context) bool {
	objects, err := f.table.Objects(ctx)
	return err == nil && slices.ContainsFunc(objects.Chains, func(c nft.Chain) bool { return strings.Contains(c.Name, "/") })
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
