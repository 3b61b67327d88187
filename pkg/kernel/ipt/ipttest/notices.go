package ipttest

import (
	"maps"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// Notices are those of the keeper of the rules: a [nf.Watch] in the nft variant, [ipt.LegacyNotices] in the other one.
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
		if f.kernel != kernel {
			kernel.Adopt(f.kernel)
			f.kernel = kernel
			f.open()
		}
		for table := range builtin {
			watched = append(watched, f.named(table))
		}
	}
	if fakes[0].features.Variant == ipt.Legacy {
		watch := &legacyWatch{fakes: fakes, sizes: make([]map[string]int, len(fakes))}
		return ipt.NewLegacyNotices(watch.look, func() error { return nil })
	}
	return kernel.Watch(watched...)
}

// LoseNotices drops what the notices have not returned yet: there was too much.
func (f *Fake) LoseNotices() { f.kernel.Lose() }

// legacyWatch looks at the numbers of rules and chains, as if no program took the lock.
type legacyWatch struct {
	fakes []*Fake
	// sizes are the numbers at the last look, by fake; at is the generation then.
	sizes []map[string]int
	at    nf.Generation
}

func (w *legacyWatch) look() (changed bool) {
	before := w.at
	if w.at, _ = w.fakes[0].conn(fakeProxy).Generation(); w.at == before {
		return false
	}
	for i, f := range w.fakes {
		now := map[string]int{}
		for name := range builtin {
			for _, c := range f.chains(name) {
				now[name] += 1 + len(f.rules(name, c.Name))
			}
		}
		changed = changed || !maps.Equal(w.sizes[i], now)
		w.sizes[i] = now
	}
	return changed
}
