package iptables

import (
	"context"
	"errors"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
)

// auditShare bounds what looking costs: a look at all rules that took t is followed by none of its kind for this many
// times t. There are two kinds, those that a stamp asks for and those that none does, so that they take at most 0.5 % of
// a core however often others write.
const auditShare = 399

// watch notices that others changed our rules: that they changed anything by a stamp, which costs microseconds, and
// whether it was ours by the digests of chains as the kernel has them.
type watch struct {
	stamp   uint64
	stamped bool
	// suspect tells that something may have changed since the digests were taken.
	suspect bool
	// digests are the chains' when they were last known to be as they should; fresh are those written since.
	digests map[chainName]uint64
	fresh   map[chainName]bool
	// asked and unasked are when all chains may be looked at next, because of a stamp and without one.
	asked, unasked time.Time
}

// wrote takes note of a sync: of the stamp before it and after it, and how many transactions of our own were between.
// In the nft variant each raises the stamp by one, whichever family it was for.
func (w *watch) wrote(before, after uint64, variant ipt.Variant, own, ownOfAll int) {
	if w.stamped && before != w.stamp {
		w.suspect = true
	}
	if passed := int(after - before); variant == ipt.NFT && passed != own && passed != ownOfAll {
		w.suspect = true
	}
	w.stamp, w.stamped = after, true
}

// writing takes note of chains that are about to be written.
func (w *watch) writing(p *patch) {
	for table, writes := range p.writes {
		for _, change := range writes {
			w.fresh[chainName{table, change.name}] = true
		}
	}
	for _, j := range p.jumps {
		w.fresh[j.from] = true
	}
	if p.localnet {
		w.fresh[chainName{tableFilter, chainLocalnet}] = true
	}
}

// Check finds out whether somebody else changed our chains or jumps. A change that replaces rules of the legacy variant by
// as many of the same size is found as soon as the cost of looking at all of them allows.
func (b *Backend) Check(ctx context.Context) ([]backend.Drift, error) {
	var drifts []backend.Drift
	var failed []error
	for _, f := range b.families {
		drift, err := f.check(ctx)
		if err != nil {
			failed = append(failed, err)
		}
		if drift != nil {
			drifts = append(drifts, *drift)
		}
	}
	return drifts, errors.Join(failed...)
}

func (f *family) check(ctx context.Context) (*backend.Drift, error) {
	if f.have == nil {
		return nil, nil // the next sync reads everything anyway
	}
	stamp, writer, err := f.door.Stamp(tables()...)
	if err != nil {
		return nil, err
	}
	if stamp != f.watch.stamp {
		f.watch.suspect, f.watch.stamp = true, stamp
	}
	next := &f.watch.unasked
	if f.watch.suspect {
		next = &f.watch.asked
	}
	start := time.Now()
	if !f.watch.suspect && f.door.Features().Variant == ipt.NFT || start.Before(*next) {
		return nil, nil
	}
	what, err := f.audit(ctx)
	*next = time.Now().Add(auditShare * time.Since(start))
	if errors.Is(err, ipt.ErrBusy) {
		return nil, nil // somebody is writing right now: look again next time
	}
	if err != nil || what == "" {
		return nil, err
	}
	return &backend.Drift{Family: f.is, What: what, Writer: writer}, nil
}

// audit compares all chains with what was written, and forgets those that differ, so that the next sync writes them. It
// tells what differs, in words.
func (f *family) audit(ctx context.Context) (what string, err error) {
	found, err := f.digests(ctx)
	if err != nil {
		return "", err
	}
	chains := f.have.chains.Edit()
	for name := range f.have.chains.All() {
		digest, exists := found[name]
		known, recorded := f.watch.digests[name]
		switch {
		case !exists:
			chains.Delete(name)
		case recorded && digest != known && !f.watch.fresh[name]:
			chains.Set(name, &chain{lines: []line{{text: "changed by somebody else"}}})
		default:
			continue
		}
		what = "the chain " + name.name + " of table " + name.table
	}
	repaired := *f.have
	repaired.chains = chains.Map()
	lost, err := f.lostJumps(&repaired, found)
	if err != nil {
		return "", err
	}
	if lost != "" {
		what = lost
	}
	f.have = &repaired
	f.watch.digests, f.watch.suspect = found, false
	clear(f.watch.fresh)
	return what, nil
}

// lostJumps looks for our rules in the built-in chains that somebody changed.
func (f *family) lostJumps(have *ruleset, found map[chainName]uint64) (what string, err error) {
	changed := func(name chainName) bool {
		known, recorded := f.watch.digests[name]
		return !recorded || known != found[name]
	}
	listed := map[chainName][]jump{}
	var kept []jump
	for _, j := range have.jumps {
		if changed(j.from) {
			if _, done := listed[j.from]; !done {
				if listed[j.from], err = f.jumpsIn(j.from); err != nil {
					return "", err
				}
			}
			here := false
			for _, other := range listed[j.from] {
				here = here || j.equal(other)
			}
			if !here {
				what = "the jump to " + j.String()
				continue
			}
		}
		kept = append(kept, j)
	}
	have.jumps = kept
	if shared := (chainName{tableFilter, chainLocalnet}); have.localnet && changed(shared) && !f.watch.fresh[shared] && f.watch.digests != nil {
		have.localnet = false // it is appended where it is not there
		what = "the chain " + chainLocalnet
	}
	return what, nil
}

// jumpsIn lists our rules in one built-in chain.
func (f *family) jumpsIn(name chainName) ([]jump, error) {
	rules, err := f.door.Rules(name.table, name.name)
	var jumps []jump
	for _, rule := range rules {
		if j, ok := jumpOf(name.table, name.name, rule); ok {
			jumps = append(jumps, j)
		}
	}
	return jumps, err
}

// baseline takes the digests of what was just read or repaired. Without them the next Check takes what it finds for right.
func (f *family) baseline(ctx context.Context) {
	found, err := f.digests(ctx)
	f.watch.digests, f.watch.suspect = found, err != nil
	clear(f.watch.fresh)
}

// digests are those of all chains of all tables that we have chains in.
func (f *family) digests(ctx context.Context) (map[chainName]uint64, error) {
	found := map[chainName]uint64{}
	for _, table := range tables() {
		digests, err := f.door.Digests(ctx, table)
		if err != nil {
			return nil, err
		}
		for name, digest := range digests {
			found[chainName{table, name}] = digest
		}
	}
	return found, nil
}
