package nftables

import (
	"context"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
)

// auditShare bounds what reading tables back may cost: an audit that took t is followed by none for this
// many times t, so that a node where others write nf_tables all the time spends at most 5 % on it.
const auditShare = 19

// watch notices that others wrote nf_tables. It listens to no events, which would make the kernel describe
// every element of our own bulk loads; it compares the generation number, which costs about 6 µs.
type watch struct {
	// generation is the kernel's after our last write or look.
	generation nft.Generation
	// suspect tells that somebody wrote something since the tables were last read.
	suspect bool
	// auditAfter is when the tables may be read next.
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

// Check finds out whether somebody else changed our tables: at once where chains, rules or sets are
// concerned, and as soon as the cost of reading allows where it is elements.
func (b *Backend) Check(ctx context.Context) ([]backend.Drift, error) {
	g := b.generation(ctx)
	if g == b.watch.generation && !b.watch.suspect {
		return nil, nil
	}
	b.watch.suspect = true
	var drifts []backend.Drift
	if g != b.watch.generation {
		for _, f := range b.families {
			if err := f.compareSkeleton(ctx, &drifts); err != nil {
				return drifts, wrap(f.is, err)
			}
		}
		b.watch.generation = g
	}
	if len(drifts) > 0 || time.Now().Before(b.watch.auditAfter) {
		return drifts, nil
	}
	start := time.Now()
	for _, f := range b.families {
		if err := f.compareElements(ctx, &drifts); err != nil {
			return drifts, wrap(f.is, err)
		}
	}
	b.watch.suspect = false
	b.watch.auditAfter = time.Now().Add(auditShare * time.Since(start))
	return drifts, nil
}

func (f *family) compareSkeleton(ctx context.Context, drifts *[]backend.Drift) error {
	if f.have == nil {
		return nil
	}
	fingerprint, err := f.table.Fingerprint(ctx, chainLayout)
	if err == nil && fingerprint != f.have.fingerprint {
		f.drifted(drifts, "its chains, rules or sets")
	}
	return err
}

func (f *family) compareElements(ctx context.Context, drifts *[]backend.Drift) error {
	if f.have == nil {
		return nil
	}
	found, err := read(ctx, f.table, f.is)
	if err == nil && !found.equal(f.have) {
		f.drifted(drifts, "its elements")
	}
	return err
}

// drifted makes the next Sync read the table again.
func (f *family) drifted(drifts *[]backend.Drift, what string) {
	f.have = nil
	*drifts = append(*drifts, backend.Drift{Family: f.is, What: what})
}
