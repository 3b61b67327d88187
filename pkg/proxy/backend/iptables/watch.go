package iptables

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
)

// allowance bounds what looking at all rules costs: an unspent part of the time is kept for later, up to a limit, so that
// one change is looked into at once, and many are as often as that part of the time allows.
type allowance struct {
	credit time.Duration
	at     time.Time
}

// There are two allowances, for looks that a stamp asks for and for those that none does: at most 0.5 % of a core.
const (
	auditShare = 0.0025
	maxCredit  = 200 * time.Millisecond
)

// allows tells whether there is some left.
func (a *allowance) allows(now time.Time) bool {
	a.credit = min(maxCredit, a.credit+time.Duration(auditShare*float64(now.Sub(a.at))))
	a.at = now
	return a.credit > 0
}

// watch notices that others changed our rules: that they changed anything by a stamp, which costs microseconds, and
// whether it was ours by the digests of chains as the kernel has them.
type watch struct {
	stamp   uint64
	stamped bool
	// suspect tells that something may have changed since the digests were taken.
	suspect bool
	// digests are the chains' as they were written, or found to be right; nil where that is not known.
	digests map[chainName]uint64
	// fresh are the chains written since, where summing them up at once would cost too much.
	fresh map[chainName]bool
	// asked and unasked are the allowances for looks that a stamp asks for, and for others.
	asked, unasked allowance
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
	stamp, err := f.door.Stamp(tables()...)
	if err != nil {
		return nil, err
	}
	if stamp != f.watch.stamp {
		f.watch.suspect, f.watch.stamp = true, stamp
	}
	purse := &f.watch.unasked
	if f.watch.suspect {
		purse = &f.watch.asked
	}
	start := time.Now()
	if !f.watch.suspect && f.door.Features().Variant == ipt.NFT || !purse.allows(start) {
		return nil, nil
	}
	what, err := f.audit(ctx)
	purse.credit -= time.Since(start)
	if errors.Is(err, ipt.ErrBusy) {
		return nil, nil // somebody is writing right now: look again next time
	}
	if err != nil || what == "" {
		return nil, err
	}
	return &backend.Drift{Family: f.is, What: what}, nil
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
		same := !recorded || digest == known
		if f.watch.fresh[name] {
			// Where nobody else wrote meanwhile, it is as we wrote it.
			if same = !f.watch.suspect; exists && !same {
				if same, err = f.asWritten(name); err != nil {
					return "", err
				}
			}
		}
		switch {
		case !exists:
			chains.Delete(name)
		case !same:
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

// asWritten compares one chain with what was written, rule by rule.
func (f *family) asWritten(name chainName) (bool, error) {
	rules, err := f.door.Rules(name.table, name.name)
	if err != nil {
		return false, err
	}
	found := &chain{read: true}
	for _, rule := range rules {
		found.lines = append(found.lines, line{text: rule})
	}
	written, ok := f.have.chains.Get(name)
	return ok && sameRules(written, found), nil
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

// maxRecorded is how many chains are summed up one by one; all at once cost less when there are more.
const maxRecorded = 64

// record takes the digests of what was just written, or of everything where everything was just read. Where that fails,
// the next Check takes what it finds for right.
func (f *family) record(ctx context.Context, p *patch, read bool) {
	written := map[string][]string{}
	for table, writes := range p.writes {
		for _, w := range writes {
			written[table] = append(written[table], w.name)
		}
	}
	for _, j := range p.jumps {
		if !slices.Contains(written[j.from.table], j.from.name) {
			written[j.from.table] = append(written[j.from.table], j.from.name)
		}
	}
	if p.localnet {
		written[tableFilter] = append(written[tableFilter], chainLocalnet)
	}
	all := read || f.watch.digests == nil
	for _, names := range written {
		all = all || len(names) > maxRecorded
	}
	if all {
		found, err := f.digests(ctx)
		f.watch.digests, f.watch.suspect = found, err != nil
		clear(f.watch.fresh)
		return
	}
	for table, names := range written {
		if f.door.Features().Variant == ipt.Legacy { // the kernel gives all rules or none
			for _, name := range names {
				f.watch.fresh[chainName{table, name}] = true
			}
			continue
		}
		digests, err := f.door.Digests(ctx, table, names...)
		if err != nil {
			f.watch.digests, f.watch.suspect = nil, true
			return
		}
		for _, name := range names {
			f.watch.digests[chainName{table, name}] = digests[name]
		}
	}
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
