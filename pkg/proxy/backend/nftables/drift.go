package nftables

import (
	"context"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
)

// auditShare bounds the cost of comparing elements: after an audit that took t there is none for this many times t, so
// that a node where others write nf_tables all the time spends at most 5 % of a processor on it.
const auditShare = 19

// auditPart is how many elements are compared at a time, in all families together: some 50 ms, which a change that comes
// just then has to wait.
const auditPart = 8192

// drift notices that others changed our tables. It subscribes to no events, for which the kernel would describe every
// element of our own bulk loads; it compares the generation number, which costs about 6 µs.
type drift struct {
	tables []*watched
	// generation is the kernel's when the tables last had the shape that they should, and all later writes were our own; 0
	// before they were read.
	generation nft.Generation
	// found are drifts that check has not returned yet.
	found []backend.Drift
	// suspect reports that others wrote something since the last audit began.
	suspect bool
	// auditing reports that an audit is under way, which took spent so far; auditAfter is when the next may begin.
	auditing   bool
	spent      time.Duration
	auditAfter time.Time
}

func newDrift(families []*family) *drift {
	d := &drift{}
	for _, f := range families {
		d.tables = append(d.tables, &watched{family: f})
	}
	return d
}

// sync is called with all transactions of a Sync, which it makes in between two readings of the generation number.
// Changes by others before the Sync are found first, so that they are not taken for our own.
func (d *drift) sync(ctx context.Context, write func() (transactions uint32)) {
	before := d.read(ctx)
	_ = d.compareShapes(ctx, before) // if it fails, check tries again and reports it
	own := write()
	after := d.read(ctx)
	if d.generation == 0 {
		d.generation = before // the Sync has read all tables
	}
	if d.generation != before || after.Since(before) != own {
		d.suspect = true // others wrote too: the next check compares shapes
		return
	}
	d.generation = after
}

// read reads the generation number; 0, which no generation has, if that fails.
func (d *drift) read(ctx context.Context) nft.Generation {
	if len(d.tables) == 0 {
		return 0
	}
	g, err := d.tables[0].table.Generation(ctx)
	if err != nil {
		return 0
	}
	return g
}

// check looks for changes by others: at once where chains, rules or sets are concerned, or the number of elements; and
// part by part, as fast as its cost allows, for what the elements hold.
func (d *drift) check(ctx context.Context) (drifts []backend.Drift, _ error) {
	err := d.compareShapes(ctx, d.read(ctx))
	drifts, d.found = d.found, nil
	if err != nil || len(drifts) > 0 {
		return drifts, err
	}
	return d.continueAudit(ctx)
}

// compareShapes compares all but what elements hold, if others wrote since it last did.
func (d *drift) compareShapes(ctx context.Context, now nft.Generation) error {
	if now == d.generation || d.generation == 0 {
		return nil
	}
	d.suspect = true
	for _, w := range d.tables {
		if err := w.compareShape(ctx, &d.found); err != nil {
			return wrap(w.schema.family, err)
		}
	}
	d.generation = now
	return nil
}

// continueAudit begins an audit if there is reason to, and continues the one under way.
func (d *drift) continueAudit(ctx context.Context) (drifts []backend.Drift, err error) {
	start := time.Now()
	if !d.auditing {
		if !d.suspect || start.Before(d.auditAfter) {
			return nil, nil
		}
		d.suspect, d.auditing, d.spent = false, true, 0
		for _, w := range d.tables {
			w.beginAudit()
		}
	}
	done := true
	for _, w := range d.tables {
		if err = w.compareElements(ctx, auditPart/len(d.tables), &drifts); err != nil {
			d.suspect, done, err = true, true, wrap(w.schema.family, err) // the next audit starts over
			break
		}
		done = done && w.audit == nil
	}
	d.spent += time.Since(start)
	if done {
		d.auditing, d.auditAfter = false, time.Now().Add(auditShare*d.spent)
	}
	return drifts, err
}

// stop ends all audits.
func (d *drift) stop() {
	for _, w := range d.tables {
		w.endAudit()
	}
}
