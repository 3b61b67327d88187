package nftables

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
)

// auditShare limits the cost of comparing elements: after an audit of duration t there is none with the same cause for
// auditShare*t, so that audits use at most 5 % of a core for each cause.
const auditShare = 19

// auditPart is the number of elements that are compared at a time, in all families together. That takes about 50 ms, by
// which a change may be delayed.
const auditPart = 8192

// drift detects external changes of our tables: it compares the generation number, which takes about 6 µs, and compares the
// tables after writes of others.
type drift struct {
	tables  []*watched
	writers writers
	// generation is the kernel's number when the tables were last known to have the right shape; all later writes were
	// our own. 0 before they were read.
	generation nft.Generation
	// mixed is the generation up to which writes may be our own or not: they are not named.
	mixed nft.Generation
	// early reports that readEarly read the tables, and no Sync followed yet.
	early bool
	// found are drifts that check has not returned yet.
	found []backend.Drift
	// suspect are the causes of the next audits: there were external writes since the last ones began.
	suspect [knownWrite + 1]bool
	// auditing is the cause of the current audit, which has taken spent so far; the next with a cause may begin at auditAfter.
	auditing   cause
	spent      time.Duration
	auditAfter [knownWrite + 1]time.Time
}

func newDrift(families []*family) *drift {
	d := &drift{}
	for _, f := range families {
		d.tables = append(d.tables, &watched{family: f})
	}
	d.writers.tables = d.tables
	return d
}

// readEarly runs the reading of all tables before the first Sync.
func (d *drift) readEarly(ctx context.Context, read func()) {
	d.generation = d.read(ctx)
	read()
	d.early = true
}

// discardStale makes the first Sync read the tables again if anybody wrote since readEarly read them.
func (d *drift) discardStale(now nft.Generation) {
	if !d.early {
		return
	}
	d.early = false
	if now == d.generation && now != 0 {
		return
	}
	d.generation = 0
	for _, w := range d.tables {
		w.found = nil
	}
}

// sync runs the two halves of a Sync, between readings of the generation number: write, and then record, which writes what the
// next process is to trust. Each returns the number of its transactions. record learns whether nobody else wrote to our tables
// during write. sync first checks for external changes, so that these are not mistaken for the Sync's own.
func (d *drift) sync(ctx context.Context, write func() (transactions uint32), record func(alone bool) (transactions uint32)) {
	before := d.read(ctx)
	d.discardStale(before)
	compared := d.compareShapes(ctx, before) // check retries and returns the error
	own := write()
	written := d.read(ctx)
	if d.generation == 0 {
		d.generation = cmp.Or(before, 1) // the Sync has read all tables; with 1 the next check compares them
	}
	alone := compared == nil && d.alone(before, written, own) // or else the fingerprint may be that of others' chains
	own = record(alone)
	after := d.read(ctx)
	if d.generation == before && alone && d.alone(written, after, own) {
		d.generation = after
	} else {
		d.mixed = after // there were external writes too: the next check compares shapes
	}
	d.writers.forget(d.generation)
}

// during runs what writes our tables between two Syncs, and returns the number of its transactions, so that these are not
// mistaken for those of others.
func (d *drift) during(ctx context.Context, write func() (transactions uint32)) {
	before := d.read(ctx)
	own := write()
	after := d.read(ctx)
	if d.generation == before && d.alone(before, after, own) {
		d.generation = after
	} else if own > 0 {
		d.mixed = after
	}
}

// alone reports whether nobody else wrote to our tables between two generations, in which we made so many transactions.
func (d *drift) alone(from, to nft.Generation, own uint32) bool {
	ours, known := d.writers.between(from, to)
	return from != 0 && to.Since(from) == own || known && len(ours) == int(own)
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
	defer d.release()
	err := d.compareShapes(ctx, d.read(ctx))
	drifts, d.found = d.found, nil
	if err != nil || len(drifts) > 0 {
		return drifts, err
	}
	return d.continueAudit(ctx)
}

// compareShapes compares the shapes of the tables if there were external writes since the last comparison.
func (d *drift) compareShapes(ctx context.Context, now nft.Generation) error {
	defer func() { d.writers.forget(d.generation) }()
	if now == d.generation || d.generation == 0 || d.early {
		return nil
	}
	ours, known := d.writers.between(d.generation, now)
	d.writers.subscribe(ctx)
	if known && len(ours) == 0 {
		d.generation = now
		return nil
	}
	if known && d.touch(ours) {
		d.suspect[knownWrite] = true
	} else {
		d.suspect[unknownWrite] = true
	}
	d.name(ours)
	for _, w := range d.tables {
		if err := w.compareShape(ctx, &d.found); err != nil {
			return wrap(w.schema.family, err)
		}
	}
	if now != 0 {
		d.generation = now
	}
	return nil
}

// touch notes the elements of writes. It returns false if some are not known.
func (d *drift) touch(ours []nft.Write) bool {
	for _, write := range ours {
		if write.Unlisted {
			return false
		}
		for _, e := range write.Elements {
			for _, w := range d.tables {
				if !w.touch(e) {
					return false
				}
			}
		}
	}
	return true
}

// name keeps who wrote our tables last, for the drifts that are found next.
func (d *drift) name(ours []nft.Write) {
	for _, write := range ours {
		for _, w := range d.tables {
			if w.writtenBy(write) && (d.mixed == 0 || write.Generation.After(d.mixed)) {
				w.writer = named(write)
			}
		}
	}
}

// continueAudit continues the current audit, or begins one if there is a reason.
func (d *drift) continueAudit(ctx context.Context) (drifts []backend.Drift, err error) {
	start := time.Now()
	if d.auditing == noCause {
		d.auditing = d.due(start)
		if d.auditing == noCause {
			return nil, nil
		}
		d.spent, d.suspect[knownWrite] = 0, false
		if d.auditing == unknownWrite {
			d.suspect[unknownWrite] = false
		}
		for _, w := range d.tables {
			w.beginAudit(d.auditing)
		}
	}
	done := true
	for _, w := range d.tables {
		if err = w.compareElements(ctx, auditPart/len(d.tables), &drifts); err != nil {
			d.suspect[unknownWrite], done, err = true, true, wrap(w.schema.family, err)
			break
		}
		done = done && w.audit == nil
	}
	d.spent += time.Since(start)
	if done {
		d.auditAfter[d.auditing] = time.Now().Add(auditShare * d.spent)
		d.auditing = noCause
	}
	return drifts, err
}

// unfinished reports whether another check is needed although nobody writes: to return what a Sync found, or for an audit.
func (d *drift) unfinished() bool {
	return len(d.found) > 0 || slices.Contains(d.suspect[:], true) || d.auditing != noCause
}

// due returns the cause for which an audit may begin, if there is one.
func (d *drift) due(now time.Time) cause {
	for _, c := range []cause{knownWrite, unknownWrite} { // the one that costs less first
		if d.suspect[c] && !now.Before(d.auditAfter[c]) {
			return c
		}
	}
	return noCause
}

// stop ends all audits, and the subscription.
func (d *drift) stop() {
	d.writers.close()
	for _, w := range d.tables {
		w.endAudit()
	}
	d.release()
}

// release releases what audits that were ended hold.
func (d *drift) release() {
	for _, w := range d.tables {
		w.release()
	}
}
