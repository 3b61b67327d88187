package nftables

import (
	"context"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
)

// auditShare limits the cost of comparing elements: after an audit of duration t there is none for auditShare*t, so
// that audits use at most 5 % of a core on a node where other programs write nf_tables all the time.
const auditShare = 19

// auditPart is the number of elements that are compared at a time, in all families together. That takes about 50 ms, by
// which a change may be delayed.
const auditPart = 8192

// drift detects external changes of our tables. It does not subscribe to notifications, because the kernel would send
// every element of our own writes; it compares the generation number, which takes about 6 µs.
type drift struct {
	tables []*watched
	// generation is the kernel's number when the tables were last known to have the right shape; all later writes were
	// our own. 0 before they were read.
	generation nft.Generation
	// found are drifts that check has not returned yet.
	found []backend.Drift
	// suspect reports that there were external writes since the last audit began.
	suspect bool
	// auditing reports that there is an audit, which has taken spent so far; the next may begin at auditAfter.
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

// sync is called with all transactions of a Sync, and runs it between two readings of the generation number. It first
// checks for external changes, so that these are not mistaken for the Sync's own. It reports whether nobody else wrote
// meanwhile.
func (d *drift) sync(ctx context.Context, write func() (transactions uint32)) (alone bool) {
	before := d.read(ctx)
	_ = d.compareShapes(ctx, before) // check retries and returns the error
	own := write()
	after := d.read(ctx)
	if d.generation == 0 {
		d.generation = before // the Sync has read all tables
	}
	alone = before != 0 && after.Since(before) == own
	if d.generation != before || !alone {
		d.suspect = true // there were external writes too: the next check compares shapes
	} else {
		d.generation = after
	}
	return alone
}

// read reads the generation number; it returns 0, which no generation has, if that fails.
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

// check returns external changes. Those of chains, rules or sets, or of the number of elements, are found immediately;
// those of elements' values by an audit, in parts.
func (d *drift) check(ctx context.Context) (drifts []backend.Drift, _ error) {
	err := d.compareShapes(ctx, d.read(ctx))
	drifts, d.found = d.found, nil
	if err != nil || len(drifts) > 0 {
		return drifts, err
	}
	return d.continueAudit(ctx)
}

// compareShapes compares the shapes of the tables if there were external writes since the last comparison.
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

// continueAudit continues the current audit, or begins one if there is a reason.
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
