package ipttest

import (
	"slices"
	"sync"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// The programs that write a Fake: its owner, and others.
const (
	fakeProxy  = "kube-proxy"
	fakeWriter = "iptables-nft-re"
)

// Notices are the notices of who writes Fakes: in the nft variant those of [nf.Watch], in the legacy variant those of
// [ipt.LegacyNotices] if no program takes the lock.
type Notices struct {
	fakes    []*Fake
	modified chan struct{} // nil in the legacy variant

	mu sync.Mutex
	// writes are those since Take; missed means that there were others. made counts all, before those when Pause was called.
	writes         []nf.Write
	missed, paused bool
	made, before   int
	// sizes are the numbers of rules at the last look, by fake.
	sizes []map[string]int
}

// NewNotices returns notices of some fakes of one variant.
func NewNotices(fakes ...*Fake) *Notices {
	n := &Notices{fakes: fakes, sizes: make([]map[string]int, len(fakes))}
	for _, f := range fakes {
		f.mu.Lock()
		if f.features.Variant == ipt.NFT {
			n.modified = make(chan struct{}, 1)
		}
		f.notices = append(f.notices, n)
		f.mu.Unlock()
	}
	return n
}

// Modified returns the channel of Report, nil in the legacy variant.
func (n *Notices) Modified() <-chan struct{} { return n.modified }

// Report sends to the channel of Modified.
func (n *Notices) Report() {
	select {
	case n.modified <- struct{}{}:
	default:
	}
}

// Take returns what was written since the last call.
func (n *Notices) Take() (writes []nf.Write, all bool) {
	resized := n.resized()
	n.mu.Lock()
	defer n.mu.Unlock()
	writes, all = n.writes, !n.missed && !resized
	n.writes, n.missed = nil, false
	return writes, all
}

// Pause makes the following writes unknown until Resume.
func (n *Notices) Pause() error {
	resized := n.resized()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.missed = n.missed || resized
	n.paused, n.before = true, n.made
	return nil
}

// Resume ends a pause, and reports whether there were only so many writes.
func (n *Notices) Resume(own int) (alone bool) {
	n.resized()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.paused = false
	return n.modified != nil && n.made-n.before == own
}

// Close ends the notices.
func (n *Notices) Close() error {
	for _, f := range n.fakes {
		f.mu.Lock()
		f.notices = slices.DeleteFunc(f.notices, func(o *Notices) bool { return o == n })
		f.mu.Unlock()
	}
	return nil
}

// add adds a transaction.
func (n *Notices) add(w nf.Write) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.made++
	if n.paused || n.modified == nil {
		return
	}
	n.writes = append(n.writes, w)
	n.Report()
}

// resized reports whether a table of the legacy variant has another number of rules or chains than at the last look.
func (n *Notices) resized() (changed bool) {
	if n.modified != nil {
		return false
	}
	for i, f := range n.fakes {
		f.mu.Lock()
		now := map[string]int{}
		for name, t := range f.tables {
			for _, c := range t.chains {
				now[name] += 1 + len(c.rules)
			}
		}
		f.mu.Unlock()
		n.mu.Lock()
		for name, size := range now {
			changed = changed || n.sizes[i][name] != size
		}
		n.sizes[i] = now
		n.mu.Unlock()
	}
	return changed
}

// LoseNotices drops what the notices have not returned yet: there was too much.
func (f *Fake) LoseNotices() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.notices {
		n.mu.Lock()
		n.writes, n.missed = nil, true
		n.mu.Unlock()
	}
}

// replace makes a transaction of a program, and reports its chains.
func (f *Fake) replace(program, name string, now *fakeTable) {
	w := nf.Write{Program: program, Process: 1}
	of := nf.TableName{Family: f.family.Number(), Name: name}
	before := f.tables[name]
	for chain, c := range now.chains {
		if before.chains[chain] != c {
			w.Objects = append(w.Objects, nf.Object{Table: of, Kind: nf.ChainObject, Name: chain})
		}
	}
	for chain := range before.chains {
		if now.chains[chain] == nil {
			w.Objects = append(w.Objects, nf.Object{Table: of, Kind: nf.ChainObject, Name: chain})
		}
	}
	f.tables[name] = now
	for _, n := range f.notices {
		n.add(w)
	}
}
