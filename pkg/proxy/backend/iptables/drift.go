package iptables

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/cputime"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
)

// drift detects external changes of the tables, by comparing them with state. The kernel's notifications report at the
// cost of microseconds that anything changed; digests of our chains show what did.
//
// Sync calls readChanges before it runs a program, and wrote after it has written a patch. Check calls check at any
// other time: it removes what has changed from state, so that the next Sync writes it.
type drift struct {
	*state
	// touched holds our chains, and those with jumps to them, that were written since their digests were last compared,
	// with the name of the program. suspect means that others may have been written, too.
	touched map[chainName]string
	suspect bool
	// rivals holds the chains written since then that only another kube-proxy has.
	rivals map[chainName]bool
	// digests holds the digests of the chains as they were written, or found unchanged; nil if they are not known.
	digests map[chainName]uint64
	// fresh holds the chains whose digests may be those of what others made of them while we wrote or read. They, and those without a
	// digest, are compared with what was written.
	fresh map[chainName]bool
	// odd holds the digests of chains that were not as they were written right after that. If a chain is the same after the next
	// time, the kernel or a program may write it with other bytes than expected, and its text is compared.
	odd map[chainName]uint64
	// fight is until when fresh chains are compared at once in the legacy variant, because a program that modified the rules shortly
	// before may have modified them once more while they were written.
	fight time.Time
	// hooks holds the digests of the rules in built-in chains that lead to ours, if they are known.
	hooks map[chainName][]uint64
	// unfinished reports that the last check left changes for the next one.
	unfinished bool
	// triggered is the allowance for checks after a notification, polling the one for all others.
	triggered, polling allowance
}

func newDrift(s *state) drift {
	return drift{state: s, touched: map[chainName]string{}, fresh: map[chainName]bool{}, hooks: map[chainName][]uint64{}, rivals: map[chainName]bool{},
		odd: map[chainName]uint64{}}
}

// allowance limits the processor time for reading all rules to a share of a core. Unused time accumulates up to a
// limit, so that a single change is checked immediately.
type allowance struct {
	credit time.Duration
	at     time.Time
}

// The shares of a core, for all families together. A program that writes all the time in the legacy variant uses more
// than triggeredShare itself, since each write also reads the table.
const (
	pollingShare   = 0.005
	triggeredShare = 0.2
	// pollingCredit is a check of a small table, for each family. triggeredCredit is some checks of a large one: a firewall that
	// restarts flushes one table after the other, and each is repaired at once.
	pollingCredit   = 200 * time.Millisecond
	triggeredCredit = 5 * time.Second
)

// allows reports whether any processor time is left; most is what accumulates.
func (a *allowance) allows(now time.Time, share float64, most time.Duration) bool {
	a.credit = min(most, a.credit+time.Duration(share*float64(now.Sub(a.at))))
	a.at = now
	return a.credit > 0
}

// nft reports whether the tables are those of the nft variant, in which the kernel reports every chain that is written.
func (d *drift) nft() bool { return d.door.Features().Variant == ipt.NFT }

// compares reports whether chains can be compared with what was written without their text.
func (d *drift) compares() bool { return d.nft() && d.door.Features().AddressBits }

// readChanges records the changes since the last call.
func (d *drift) readChanges(ctx context.Context) {
	changes, err := d.door.Changes(ctx, tables()...)
	if err != nil {
		d.suspect = true // some changes may not have been reported
		return
	}
	d.suspect = d.suspect || changes.More
	for name, writer := range changes.Chains {
		in := chainName{name.Table, name.Chain}
		if d.foreign(in) {
			d.rivals[in] = true
		}
		if d.interested(in) {
			d.touched[in] = writer
		}
	}
}

// discardChanges attributes the changes since the last call to our own writes.
func (d *drift) discardChanges(ctx context.Context) {
	suspect := d.suspect
	d.readChanges(ctx)
	d.suspect = suspect
}

// interested reports whether a chain is ours, or has jumps to ours.
func (d *drift) interested(name chainName) bool {
	if d.held == nil {
		return false // the next sync reads everything
	}
	if _, ours := d.held.chains.Get(name); ours || name == (chainName{tableFilter, chainLocalnet}) {
		return true
	}
	return slices.ContainsFunc(d.held.hooks, func(h hook) bool { return h.in == name })
}

// foreign reports whether only another kube-proxy has a chain: one for an endpoint, with a name that we do not use.
func (d *drift) foreign(name chainName) bool {
	if d.held == nil || name.table != tableNAT || !strings.HasPrefix(name.name, prefixEndpoint) {
		return false
	}
	_, ours := d.held.chains.Get(name)
	return !ours
}

// check reports whether chains or hooks were modified externally; share is this family's part of both allowances.
func (d *drift) check(ctx context.Context, share float64) (*backend.Drift, error) {
	if d.held == nil {
		d.unfinished = false
		return nil, nil // the next sync reads everything
	}
	now, budget := time.Now(), &d.triggered
	d.unfinished = true
	if !budget.allows(now, triggeredShare*share, triggeredCredit) {
		return nil, nil // the changes remain queued
	}
	ctx, spent := cputime.Measure(ctx)
	defer func() { budget.credit -= spent() }()
	d.readChanges(ctx)
	d.suspect = d.suspect || len(d.fresh) > 0 && !d.nft() && now.Before(d.fight)
	if !d.suspect && len(d.touched) == 0 && (len(d.fresh) == 0 || !d.nft()) {
		d.unfinished = false
		idle := len(d.fresh) == 0 // what was just written is compared first: polling leaves some credit for it
		if d.nft() || !d.polling.allows(now, pollingShare*share, pollingCredit) || idle && d.polling.credit < pollingCredit/2 {
			return nil, nil
		}
		budget = &d.polling
	}
	found, err := d.audit(ctx)
	if found != nil {
		d.fight = now.Add(fightLasts)
	}
	if errors.Is(err, ipt.ErrBusy) {
		return nil, nil // another program is writing: retry with the next check
	}
	d.unfinished = err != nil
	return found, err
}

// audit compares chains with what was written, and removes from state what differs: all chains, or only those in
// touched if no others can have changed. It returns nil if nothing differs.
func (d *drift) audit(ctx context.Context) (*backend.Drift, error) {
	some := d.nft() && !d.suspect && d.digests != nil && len(d.fresh) <= maxRecorded
	for name := range d.fresh {
		if _, touched := d.touched[name]; some && !touched {
			d.touched[name] = "" // nobody else's write is known
		}
	}
	names := slices.Collect(maps.Keys(d.touched))
	given := names
	if !some {
		given, names = nil, nil
		for name := range d.held.chains.All() {
			names = append(names, name)
		}
	}
	unknown := d.unknown(names)
	found, asWritten, err := d.read(ctx, given, d.compares() && len(unknown) > 0)
	if err != nil {
		return nil, err
	}
	repaired := *d.held
	lost, in, err := d.lostHooks(ctx, &repaired, found, some, names)
	if err != nil {
		return nil, err
	}
	if asWritten == nil && len(unknown) > 0 {
		if asWritten, err = d.asWritten(ctx, unknown); err != nil {
			return nil, err
		}
	}
	var drifted *backend.Drift
	rival := len(d.rivals) > 0
	for name := range found {
		rival = rival || d.foreign(name)
	}
	clear(d.rivals)
	note := func(what string, in chainName) {
		if drifted == nil {
			drifted = &backend.Drift{}
		}
		*drifted = backend.Drift{Family: d.family, What: what, Writer: d.touched[in], Details: detailed(drifted.Details, what), Rival: rival}
	}
	slices.SortFunc(names, chainName.Compare)
	chains := repaired.chains.Edit()
	for _, name := range names {
		if _, ours := d.held.chains.Get(name); !ours {
			continue
		}
		digest, exists := found[name]
		right := digest == d.digests[name]
		if unknown[name] {
			right = asWritten[name]
		}
		if !exists || !right {
			chains.Set(name, &chain{altered: true})
			note("the chain "+name.name+" of table "+name.table, name)
		}
	}
	repaired.chains = chains.Map()
	if lost != "" {
		note(lost, in)
	}
	d.held = &repaired
	d.compared(some, found)
	return drifted, nil
}

// unknown returns those of our chains among names whose digests say nothing: they are compared with what was written.
func (d *drift) unknown(names []chainName) map[chainName]bool {
	unknown := map[chainName]bool{}
	for _, name := range names {
		_, ours := d.held.chains.Get(name)
		_, recorded := d.digests[name]
		if ours && (d.fresh[name] || !recorded) {
			unknown[name] = true
		}
	}
	return unknown
}

// detailed adds a detail to those of a drift.
func detailed(details []string, what string) []string {
	if len(details) == backend.MaxDetails {
		return details
	}
	return append(details, what)
}

// compared records the digests found, of all chains or of those in touched: what differed is written again anyway.
func (d *drift) compared(some bool, found map[chainName]uint64) {
	if !some {
		d.digests, d.suspect = found, false
	}
	for name := range d.touched {
		if digest, exists := found[name]; exists {
			d.digests[name] = digest
		} else {
			delete(d.digests, name)
		}
	}
	clear(d.touched)
	clear(d.fresh)
}

// lostHooks removes from a ruleset the hooks that are missing in the built-in chains that were changed externally. It
// describes the last one, and returns its chain. found are the digests of all chains, or only of names if some is set.
func (d *drift) lostHooks(ctx context.Context, have *ruleset, found map[chainName]uint64, some bool, names []chainName) (what string, in chainName, err error) {
	changed := func(name chainName) bool {
		known, recorded := d.digests[name]
		// The digest of a chain that was just written may be that of what another program made of it.
		return (!some || slices.Contains(names, name)) && (!recorded || known != found[name] || d.fresh[name])
	}
	there := map[chainName][]hook{}
	var kept []hook
	for _, h := range have.hooks {
		if changed(h.in) && !d.allHooks(h.in) {
			// A chain that a rule jumps to cannot be deleted, so without the chain no program has to list the rules.
			_, exists := found[chainName{h.in.table, h.to}]
			lost := !some && !exists
			if _, listed := there[h.in]; !listed && !lost {
				if there[h.in], err = d.hooksIn(ctx, h.in); err != nil {
					return "", in, err
				}
			}
			if lost || !slices.ContainsFunc(there[h.in], h.equal) {
				what, in = "the jump to "+h.to+" in "+h.in.name+" of "+h.in.table, h.in
				continue
			}
		}
		kept = append(kept, h)
	}
	have.hooks = kept
	if shared := (chainName{tableFilter, chainLocalnet}); have.localnet && changed(shared) {
		_, exists := found[shared]
		if exists {
			if exists, err = d.hasLocalnetRules(ctx); err != nil {
				return "", in, err
			}
		}
		if !exists {
			have.localnet = false // the next sync appends the missing rule
			what, in = "the chain "+chainLocalnet, shared
		}
	}
	return what, in, nil
}

// hasLocalnetRules runs a program that lists the chain that is shared with the kubelet.
func (d *drift) hasLocalnetRules(ctx context.Context) (bool, error) {
	rules, err := d.door.Rules(ctx, tableFilter, chainLocalnet)
	for _, wanted := range localnetRules() {
		if !slices.ContainsFunc(rules, func(rule string) bool { return canonical(rule) == canonical(wanted.Text()) }) {
			return false, err
		}
	}
	return true, err
}

// allHooks reports, without running a program, whether all our rules are still in a built-in chain.
func (d *drift) allHooks(name chainName) bool {
	known := d.hooks[name]
	now, err := d.door.RuleDigests(name.table, name.name)
	return err == nil && len(known) > 0 && !slices.ContainsFunc(known, func(digest uint64) bool { return !slices.Contains(now, digest) })
}

// hooksIn runs a program that lists our rules in one built-in chain, and keeps their digests if nobody changed it at
// the same time.
func (d *drift) hooksIn(ctx context.Context, name chainName) (hooks []hook, err error) {
	before, errBefore := d.door.RuleDigests(name.table, name.name)
	if errBefore == nil && len(before) == 0 && d.nft() {
		return nil, nil
	}
	rules, err := d.door.Rules(ctx, name.table, name.name)
	after, errAfter := d.door.RuleDigests(name.table, name.name)
	if err := errors.Join(err, errBefore, errAfter); err != nil {
		return nil, err
	}
	steady := slices.Equal(before, after) && len(after) == len(rules)
	delete(d.hooks, name)
	for i, rule := range rules {
		if h, ok := parseHook(name, rule); ok {
			hooks = append(hooks, h)
			if steady {
				d.hooks[name] = append(d.hooks[name], after[i])
			}
		}
	}
	return hooks, nil
}

// maxRecorded is the number of chains above which digests of all chains cost less than those of some.
const maxRecorded = 64

// fightLasts is how long a program is expected to modify the rules again.
const fightLasts = time.Minute
