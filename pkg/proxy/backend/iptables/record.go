package iptables

import (
	"context"
	"errors"
	"maps"
	"slices"
)

// wrote records the digests of what a patch wrote, or of everything if everything was just read; found are those of
// before the patch, if reading returned them. If that fails, the next check compares the chains with what was written.
func (d *drift) wrote(ctx context.Context, p *patch, read bool, found map[chainName]uint64) {
	if found != nil {
		d.digests, d.suspect, read = found, false, false
	}
	written := map[chainName]bool{}
	for table, writes := range p.writes {
		for _, w := range writes {
			written[chainName{table, w.name}] = true
		}
	}
	for _, h := range p.hooks {
		delete(d.hooks, h.in)
		written[h.in] = true
	}
	if p.localnet {
		written[chainName{tableFilter, chainLocalnet}] = true
	}
	if d.nft() {
		d.readChanges(ctx)
	} else {
		d.discardChanges(ctx) // our own program took the lock and changed the tables' sizes
	}
	for table, names := range p.deletes {
		for _, name := range names {
			delete(d.digests, chainName{table, name})
			delete(d.odd, chainName{table, name})
			delete(d.rivals, chainName{table, name}) // the kernel also reports our own deletions
		}
	}
	d.record(ctx, written, read || d.digests == nil)
}

// record records the digests of the chains that were written, or of all chains. Those that are not as they were written, because
// another program modified them meanwhile, are left to the next check. So are all that were written if only their text shows
// what they are: their digests may be those of what another program made of them.
func (d *drift) record(ctx context.Context, written map[chainName]bool, all bool) {
	if len(written) == 0 && !all {
		return
	}
	var found map[chainName]uint64
	var asWritten map[chainName]bool
	err := errors.ErrUnsupported
	if d.compares() {
		found, asWritten, err = d.readWritten(ctx, written, all || len(written) > maxRecorded)
	}
	if err != nil {
		maps.Copy(d.fresh, written)
		if all {
			d.digests = nil
		}
		// In the legacy variant the kernel returns all rules or none, which costs too much after each write of few.
		d.suspect = d.suspect || d.nft() || all || len(written) > maxRecorded
		return
	}
	switch {
	case all:
		meanwhile := maps.Clone(d.touched) // since everything was read
		maps.DeleteFunc(meanwhile, func(name chainName, _ string) bool { return written[name] })
		d.compared(false, found)
		for name := range meanwhile {
			d.fresh[name] = true
		}
	case len(written) > maxRecorded && d.unchanged(found, written): // too many notifications of our own writes are no sign of others'
		d.suspect = false
	}
	odd := d.differing(ctx, written, found, asWritten)
	for name := range written { // others may have changed since the last check: it has yet to see that
		if odd[name] {
			d.odd[name], d.fresh[name] = found[name], true
			continue
		}
		d.digests[name] = found[name]
		delete(d.touched, name)
		delete(d.fresh, name)
		if asWritten[name] {
			delete(d.odd, name)
		}
		if !name.ours() { // it was not compared
			d.fresh[name] = true
		}
	}
}

// unchanged reports whether all chains but those written have the known digests, and no others exist.
func (d *drift) unchanged(found map[chainName]uint64, written map[chainName]bool) bool {
	for name, digest := range found {
		if known, recorded := d.digests[name]; !written[name] && (!recorded || digest != known) {
			return false
		}
	}
	for name := range d.digests {
		if _, exists := found[name]; !exists {
			return false
		}
	}
	return true
}

// readWritten reads the chains that were written, or all. Those with jumps to ours were written last, and cannot be compared: they
// are read before all others, so that little time passes.
func (d *drift) readWritten(ctx context.Context, written map[chainName]bool, all bool) (found map[chainName]uint64, asWritten map[chainName]bool, err error) {
	if !all {
		return d.read(ctx, slices.Collect(maps.Keys(written)), true)
	}
	others := []chainName{}
	for name := range written {
		if !name.ours() {
			others = append(others, name)
		}
	}
	jumps, _, err := d.read(ctx, others, false)
	if err != nil {
		return nil, nil, err
	}
	if found, asWritten, err = d.read(ctx, nil, true); err == nil {
		maps.Copy(found, jumps)
	}
	return found, asWritten, err
}

// differing returns the chains that are not as they were written. One that was the same after it was written the last time is
// compared as text: if that is right, only its bytes are others than expected.
func (d *drift) differing(ctx context.Context, written map[chainName]bool, found map[chainName]uint64, asWritten map[chainName]bool) map[chainName]bool {
	differ, again := map[chainName]bool{}, map[chainName]bool{}
	for name := range written {
		if !name.ours() || asWritten[name] {
			continue
		}
		differ[name] = true
		if before, odd := d.odd[name]; odd && before == found[name] {
			again[name] = true
		}
	}
	if len(again) == 0 {
		return differ
	}
	if right, err := d.asWritten(ctx, again); err == nil {
		maps.DeleteFunc(differ, func(name chainName, _ bool) bool { return right[name] })
	}
	return differ
}
