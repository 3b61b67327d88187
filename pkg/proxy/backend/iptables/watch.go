package iptables

import (
	"context"
	"errors"
	"iter"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/cputime"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
)

// allowance bounds what looking at all rules costs: an unspent part of the time is kept for later, up to a limit, so that
// one change is looked into at once, and many are as often as that part of the time allows.
type allowance struct {
	credit time.Duration
	at     time.Time
}

// There are two allowances, parts of a core that all families share: for looks at what seems not to have changed, which is
// polling, and for those that somebody's writing asks for. Whoever writes without pause in the legacy variant spends more
// than the latter on it, since each write is a look, too.
const (
	unaskedShare = 0.005
	askedShare   = 0.2
	maxCredit    = 200 * time.Millisecond
)

// allows tells whether there is some left, where a share of a core may be used.
func (a *allowance) allows(now time.Time, share float64) bool {
	a.credit = min(maxCredit, a.credit+time.Duration(share*float64(now.Sub(a.at))))
	a.at = now
	return a.credit > 0
}

// watch notices that others changed our rules: that they changed anything by what the door hears, which costs
// microseconds, and whether it is still as we wrote it by the digests of chains as the kernel has them.
type watch struct {
	// touched are chains of ours, and those that lead to them, that anybody wrote since their digests were compared, with
	// the program's name; suspect tells that others may have been, too.
	touched map[chainName]string
	suspect bool
	// rival tells that a chain was written that only another kube-proxy has.
	rival bool
	// digests are the chains' as they were written, or found to be right; nil where that is not known.
	digests digests
	// fresh are the chains written since, where summing them up at once would cost too much.
	fresh map[chainName]bool
	// jumps are the rules in built-in chains that lead to ours, by their digests, where these are known.
	jumps map[chainName][]uint64
	// asked and unasked are the allowances for looks at what may have changed, and for others.
	asked, unasked allowance
}

func newWatch() watch {
	return watch{touched: map[chainName]string{}, fresh: map[chainName]bool{}, jumps: map[chainName][]uint64{}}
}

// digests are chains', by table and name.
type digests map[string]map[string]uint64

func (d digests) of(name chainName) (digest uint64, known bool) {
	digest, known = d[name.table][name.name]
	return digest, known
}

// hear takes note of what was changed since it was last called.
func (f *family) hear() {
	changes, err := f.door.Changes(tables()...)
	if err != nil {
		f.watch.suspect = true // whatever it was that could not be heard
		return
	}
	f.watch.suspect = f.watch.suspect || changes.More
	for name, writer := range changes.Chains {
		f.watch.rival = f.watch.rival || foreign(name.Table, name.Chain)
		if own := (chainName{name.Table, name.Chain}); f.minds(own) {
			f.watch.touched[own] = writer
		}
	}
}

// passOver takes what there is to hear for our own doing.
func (f *family) passOver() {
	suspect := f.watch.suspect
	f.hear()
	f.watch.suspect = suspect
}

// minds tells whether it matters what a chain holds: it is ours, or is to lead to ours.
func (f *family) minds(name chainName) bool {
	if f.have == nil {
		return false // everything is read anyway before anything is written
	}
	if _, ours := f.have.chains.Get(name); ours || name == (chainName{tableFilter, chainLocalnet}) {
		return true
	}
	return slices.ContainsFunc(f.have.jumps, func(j jump) bool { return j.from == name })
}

// Check finds out whether somebody else changed our chains or jumps. In the nft variant the kernel tells which chains were
// written, and only those are looked at. In the legacy variant all are, when a program took the xtables lock or a table's
// size is another; a change of neither is found as soon as the cost of looking at all of them allows.
func (b *Backend) Check(ctx context.Context) ([]backend.Drift, error) {
	var drifts []backend.Drift
	var failed []error
	runtime.LockOSThread() // whose processor time is what a look costs
	defer runtime.UnlockOSThread()
	for _, f := range b.families {
		drift, err := f.check(ctx, len(b.families))
		if err != nil {
			failed = append(failed, err)
		}
		if drift != nil {
			drifts = append(drifts, *drift)
		}
	}
	return drifts, errors.Join(failed...)
}

// check is Check for one of so many families.
func (f *family) check(ctx context.Context, families int) (*backend.Drift, error) {
	if f.have == nil {
		return nil, nil // the next sync reads everything anyway
	}
	now, purse := time.Now(), &f.watch.asked
	if !purse.allows(now, askedShare/float64(families)) {
		return nil, nil // the door keeps what there is to hear
	}
	before := cputime.Spent()
	defer func() { purse.credit -= cputime.Spent() - before }()
	f.hear()
	if !f.watch.suspect && len(f.watch.touched) == 0 {
		if f.door.Features().Variant == ipt.NFT || !f.watch.unasked.allows(now, unaskedShare/float64(families)) {
			return nil, nil
		}
		purse = &f.watch.unasked
	}
	drift, err := f.audit(ctx)
	if errors.Is(err, ipt.ErrBusy) {
		return nil, nil // somebody is writing right now: look again next time
	}
	return drift, err
}

// audit compares chains with what was written, and forgets those that differ, so that the next sync writes them: all of
// them, or those that were touched where no other can have been. It tells what differs; nil is nothing.
func (f *family) audit(ctx context.Context) (*backend.Drift, error) {
	touched := f.watch.touched
	if f.watch.suspect || f.watch.digests == nil || f.door.Features().Variant == ipt.Legacy {
		touched = nil
	}
	found, err := f.digests(ctx, touched)
	if err != nil {
		return nil, err
	}
	var drift *backend.Drift
	rival := f.watch.rival || rivalIn(found[tableNAT])
	f.watch.rival = false
	note := func(what, writer string) {
		drift = &backend.Drift{Family: f.is, What: what, Writer: writer, Rival: rival}
	}
	chains := f.have.chains.Edit()
	for name := range f.looked(touched) {
		as, err := f.compare(name, found)
		switch {
		case err != nil:
			return nil, err
		case as == gone:
			chains.Delete(name)
		case as == altered:
			chains.Set(name, &chain{lines: []line{{text: "changed by somebody else"}}})
		default:
			continue
		}
		note("the chain "+name.name+" of table "+name.table, f.watch.touched[name])
	}
	repaired := *f.have
	repaired.chains = chains.Map()
	changed := func(name chainName) bool {
		if _, looked := touched[name]; touched != nil && !looked {
			return false
		}
		known, recorded := f.watch.digests.of(name)
		now, _ := found.of(name)
		return !recorded || known != now
	}
	lost, from, err := f.lostJumps(&repaired, changed)
	if err != nil {
		return nil, err
	}
	if lost != "" {
		note(lost, f.watch.touched[from])
	}
	f.have = &repaired
	f.compared(touched, found)
	return drift, nil
}

// foreign tells whether only another kube-proxy has a chain: one for each endpoint.
func foreign(table, chain string) bool {
	return table == tableNAT && strings.HasPrefix(chain, prefixEndpoint)
}

// rivalIn looks for such a chain, which there was none of after the last sync.
func rivalIn(chains map[string]uint64) bool {
	for name := range chains {
		if foreign(tableNAT, name) {
			return true
		}
	}
	return false
}

// looked are the chains of ours that are looked at: those touched, or all where that is nil.
func (f *family) looked(touched map[chainName]string) iter.Seq[chainName] {
	return func(yield func(chainName) bool) {
		if touched != nil {
			for name := range touched {
				if _, ours := f.have.chains.Get(name); ours && !yield(name) {
					return
				}
			}
			return
		}
		for name := range f.have.chains.All() {
			if !yield(name) {
				return
			}
		}
	}
}

// What a chain is, compared with what was written.
const (
	right = iota
	altered
	gone
)

func (f *family) compare(name chainName, found digests) (as int, err error) {
	digest, exists := found.of(name)
	known, recorded := f.watch.digests.of(name)
	same := !recorded || digest == known
	if f.watch.fresh[name] {
		// Where nobody else wrote meanwhile, it is as we wrote it.
		if same = !f.watch.suspect; exists && !same {
			same, err = f.asWritten(name)
		}
	}
	switch {
	case !exists:
		return gone, err
	case !same:
		return altered, err
	}
	return right, err
}

// compared takes the digests found for right from now on: what differed is written again.
func (f *family) compared(touched map[chainName]string, found digests) {
	if touched == nil {
		f.watch.digests, f.watch.suspect = found, false
	}
	for name := range touched {
		if digest, exists := found.of(name); exists {
			f.watch.digests[name.table][name.name] = digest
		} else {
			delete(f.watch.digests[name.table], name.name)
		}
	}
	clear(f.watch.touched)
	clear(f.watch.fresh)
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

// lostJumps looks for our rules in the built-in chains that somebody changed. It tells what is lost, and from where.
func (f *family) lostJumps(have *ruleset, changed func(chainName) bool) (what string, from chainName, err error) {
	there := map[chainName][]jump{}
	var kept []jump
	for _, j := range have.jumps {
		if changed(j.from) && !f.allJumps(j.from) {
			if _, listed := there[j.from]; !listed {
				if there[j.from], err = f.jumpsIn(j.from); err != nil {
					return "", from, err
				}
			}
			if !slices.ContainsFunc(there[j.from], j.equal) {
				what, from = "the jump to "+j.String(), j.from
				continue
			}
		}
		kept = append(kept, j)
	}
	have.jumps = kept
	if shared := (chainName{tableFilter, chainLocalnet}); have.localnet && changed(shared) && !f.watch.fresh[shared] && f.watch.digests != nil {
		have.localnet = false // it is appended where it is not there
		what, from = "the chain "+chainLocalnet, shared
	}
	return what, from, nil
}

// allJumps tells, without a program, that all our rules are still in a built-in chain.
func (f *family) allJumps(name chainName) bool {
	known := f.watch.jumps[name]
	now, err := f.door.RuleDigests(name.table, name.name)
	return err == nil && len(known) > 0 && !slices.ContainsFunc(known, func(digest uint64) bool { return !slices.Contains(now, digest) })
}

// jumpsIn has a program list our rules in one built-in chain, and remembers their digests where nobody changed it meanwhile.
func (f *family) jumpsIn(name chainName) (jumps []jump, err error) {
	before, errBefore := f.door.RuleDigests(name.table, name.name)
	rules, err := f.door.Rules(name.table, name.name)
	after, errAfter := f.door.RuleDigests(name.table, name.name)
	if err := errors.Join(err, errBefore, errAfter); err != nil {
		return nil, err
	}
	steady := slices.Equal(before, after) && len(after) == len(rules)
	delete(f.watch.jumps, name)
	for i, rule := range rules {
		if j, ok := jumpOf(name.table, name.name, rule); ok {
			jumps = append(jumps, j)
			if steady {
				f.watch.jumps[name] = append(f.watch.jumps[name], after[i])
			}
		}
	}
	return jumps, nil
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
		delete(f.watch.jumps, j.from)
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
	if f.door.Features().Variant == ipt.Legacy {
		f.passOver() // it was ourselves who took the lock, and changed the tables' sizes
	} else {
		f.hear()
	}
	if all {
		found, err := f.digests(ctx, nil)
		f.compared(nil, found)
		f.watch.suspect = err != nil
		return
	}
	for table, names := range p.deletes {
		for _, name := range names {
			delete(f.watch.digests[table], name)
		}
	}
	for table, names := range written {
		if f.door.Features().Variant == ipt.Legacy { // the kernel gives all rules or none
			for _, name := range names {
				f.watch.fresh[chainName{table, name}] = true
			}
			continue
		}
		found, err := f.door.Digests(ctx, table, names...)
		if err != nil {
			f.watch.digests, f.watch.suspect = nil, true
			return
		}
		for _, name := range names {
			f.watch.digests[table][name] = found[name]
			delete(f.watch.touched, chainName{table, name})
		}
	}
}

// digests are those of the given chains, or where that is nil of all chains of all tables that we have chains in.
func (f *family) digests(ctx context.Context, given map[chainName]string) (digests, error) {
	found := digests{}
	byTable := map[string][]string{}
	for name := range given {
		byTable[name.table] = append(byTable[name.table], name.name)
	}
	for _, table := range tables() {
		if given != nil && byTable[table] == nil {
			continue
		}
		var err error
		if found[table], err = f.door.Digests(ctx, table, byTable[table]...); err != nil {
			return nil, err
		}
	}
	return found, nil
}
