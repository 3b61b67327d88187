package ipttest

import (
	"maps"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// The programs that write a Fake: its owner, and others.
const (
	fakeProxy  = "kube-proxy"
	fakeWriter = "iptables-nft-re"
)

// Notices are those of the keeper of the rules: in the nft variant a [nf.Watch], in the legacy variant [ipt.LegacyNotices] if no
// program takes the lock.
type Notices interface {
	// The methods are those of [nf.Watch].
	Modified() <-chan struct{}
	Report()
	Take() (writes []nf.Write, all bool)
	Pause() error
	Resume(own int) (alone bool)
	Close() error
}

// NewNotices returns notices of some fakes of one variant, which are in one network namespace from now on.
func NewNotices(fakes ...*Fake) Notices {
	kernel := fakes[0].kernel
	var watched []nf.TableName
	for _, f := range fakes {
		f.mu.Lock()
		f.kernel = kernel
		f.mu.Unlock()
		for table := range builtin {
			watched = append(watched, nf.TableName{Family: f.family.Number(), Name: table})
		}
	}
	if fakes[0].features.Variant == ipt.Legacy {
		return &legacyNotices{fakes: fakes, sizes: make([]map[string]int, len(fakes))}
	}
	return kernel.Watch(watched...)
}

// LoseNotices drops what the notices have not returned yet: there was too much.
func (f *Fake) LoseNotices() { f.kernel.Lose() }

// legacyNotices notice that tables have another number of rules or chains than at the last look.
type legacyNotices struct {
	fakes  []*Fake
	missed bool
	// sizes are the numbers at the last look, by fake.
	sizes []map[string]int
}

// Modified is that of [ipt.LegacyNotices], as all methods are.
func (n *legacyNotices) Modified() <-chan struct{} { return nil }

// Report implements Notices.
func (n *legacyNotices) Report() {}

// Take implements Notices.
func (n *legacyNotices) Take() (_ []nf.Write, all bool) {
	n.missed = n.look() || n.missed
	all, n.missed = !n.missed, false
	return nil, all
}

// Pause implements Notices.
func (n *legacyNotices) Pause() error {
	n.missed = n.look() || n.missed
	return nil
}

// Resume implements Notices.
func (n *legacyNotices) Resume(int) (alone bool) {
	n.look()
	return false
}

// Close implements Notices.
func (n *legacyNotices) Close() error { return nil }

func (n *legacyNotices) look() (changed bool) {
	for i, f := range n.fakes {
		f.mu.Lock()
		now := map[string]int{}
		for name, t := range f.tables {
			for _, c := range t.chains {
				now[name] += 1 + len(c.rules)
			}
		}
		f.mu.Unlock()
		changed = changed || !maps.Equal(n.sizes[i], now)
		n.sizes[i] = now
	}
	return changed
}

// replace makes a transaction of a program, and reports its chains.
func (f *Fake) replace(program, name string, now *fakeTable) {
	var chains []string
	before := f.tables[name]
	for chain, c := range now.chains {
		if before.chains[chain] != c {
			chains = append(chains, chain)
		}
	}
	for chain := range before.chains {
		if now.chains[chain] == nil {
			chains = append(chains, chain)
		}
	}
	f.tables[name] = now
	if f.features.Variant == ipt.NFT {
		f.kernel.Notify(program, 1, nf.TableName{Family: f.family.Number(), Name: name}, chains...)
	}
}
