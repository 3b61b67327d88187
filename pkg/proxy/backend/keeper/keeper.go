// Package keeper keeps rules in the kernel equal to plans, whatever others write there.
//
// What the kernel holds is known from what was written or read last, and from the kernel's notifications of all
// transactions. What somebody else wrote is read again, and compared with what should be there; nothing is remembered of
// our own writes but what they wrote. The plan of these types is in docs/decisions 0032.
package keeper

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/cputime"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Notices report who wrote the kernel's tables. [nf.Watch] is the kernel's; the legacy variant of iptables has no notifications
// and finds out in another way.
type Notices interface {
	// Modified returns the channel of [backend.Backend.Modified], nil if Take has to be called periodically. Report sends to it.
	Modified() <-chan struct{}
	Report()
	// Take returns the transactions since the last call, and whether these are all.
	Take() (writes []nf.Write, all bool)
	// Pause makes the following transactions unknown until Resume, which reports whether there were only so many of our own.
	Pause() error
	Resume(own int) (alone bool)
	Close() error
}

// Rules are a backend's rules in one family.
type Rules interface {
	Family() cluster.Family
	// Begin returns the writes that make the rules equal to a plan. touched is what was written since it was last compared; rules
	// that were read before the first Sync are read again if it is not empty.
	Begin(ctx context.Context, p *plan.Plan, touched Touched) Pass
	// Holds reports whether an object belongs to the rules, or leads to them.
	Holds(nf.Object) bool
	// Reread compares what was touched with what should be there. What differs is known for what it is after that, so that the
	// next Begin repairs it. It returns what it has not compared yet: it may continue in a goroutine of its own, which calls
	// report when Reread is to be called again. Without rules that are known to be in the kernel it does nothing.
	Reread(ctx context.Context, touched Touched, report func()) (left Touched, drift *backend.Drift, err error)
	// Forget makes the next Begin read the kernel's state.
	Forget()
}

// Pass is the work of one Sync in one family. Its methods are called in this order.
type Pass interface {
	// Size is about how many objects will be written.
	Size() int
	// Put makes new packets meet the plan, Finish removes what is unused after that.
	Put()
	Finish()
	// Transactions returns how many transactions were made, and whether that is certain.
	Transactions() (n int, certain bool)
	// End records what the kernel holds now, and returns the result. alone means that nobody else wrote since Begin.
	End(alone bool) backend.Result
}

// Touched is what somebody wrote that has to be compared. The zero value is nothing.
type Touched struct {
	// All means that anything may have been written, otherwise only Objects, each by the program named, its name and process.
	All     bool
	Objects map[nf.Object]string
	// Writer names the last program that is known to have written.
	Writer string
}

// maxTouched is the number of objects above which all are compared.
const maxTouched = 10_000

// Empty reports whether nothing was written.
func (t Touched) Empty() bool { return !t.All && len(t.Objects) == 0 }

// add adds an object that a program wrote.
func (t *Touched) add(o nf.Object, writer string) {
	if t.Objects == nil {
		t.Objects = map[nf.Object]string{}
	}
	t.Objects[o] = writer
	t.All = t.All || len(t.Objects) > maxTouched
}

// Keeper is a [backend.Backend] without the parts that a mode adds. One goroutine uses it.
type Keeper struct {
	notices  Notices
	families []*family
	budget   budget
	// doubt is the budget for what nobody is known to have written.
	doubt budget
}

// family is one family's rules with what others did to them.
type family struct {
	Rules
	touched Touched
	// told means that touched is more than a doubt: somebody wrote.
	told bool
	// found are drifts that Check has not returned yet.
	found []backend.Drift
}

// New returns a Keeper. share is the part of a core that comparing may use.
func New(notices Notices, share float64, rules ...Rules) *Keeper {
	k := &Keeper{notices: notices, budget: budget{share: share, most: triggeredCredit}, doubt: budget{share: doubtShare, most: doubtCredit}}
	for _, r := range rules {
		k.families = append(k.families, &family{Rules: r})
	}
	return k
}

// large is the number of written objects from which notifications of our own writes cost more than they say.
const large = 1000

// Sync is part of [backend.Backend]. Removals, which wait for packets in progress, come after the additions of all families.
func (k *Keeper) Sync(ctx context.Context, p *plan.Plan, families ...cluster.Family) []backend.Result {
	k.take()
	defer k.notices.Report()
	var passes []Pass
	size := 0
	for _, f := range k.families {
		if len(families) > 0 && !slices.Contains(families, f.Family()) {
			continue
		}
		f.compare(ctx, func(o nf.Object) bool { return o.Kind != nf.Element }, k.notices.Report) // Check returns the error
		pass := f.Begin(ctx, p, f.touched)
		passes = append(passes, pass)
		size += pass.Size()
	}
	if size > 0 && k.notices.Modified() == nil {
		size += large // otherwise our own programs would count as others'
	}
	paused := size > large && k.notices.Pause() == nil
	for _, pass := range passes {
		pass.Put()
	}
	for _, pass := range passes {
		pass.Finish()
	}
	alone := k.alone(passes, paused)
	results := make([]backend.Result, len(passes))
	for i, pass := range passes {
		results[i] = pass.End(alone)
	}
	return results
}

// alone ends the writing of passes, and reports whether nobody else wrote meanwhile. Otherwise what was written is touched.
func (k *Keeper) alone(passes []Pass, paused bool) bool {
	own, certain := 0, true
	for _, pass := range passes {
		n, sure := pass.Transactions()
		own, certain = own+n, certain && sure
	}
	if paused {
		if k.notices.Resume(own) && certain {
			return true
		}
		for _, f := range k.families {
			f.touched.All = true
		}
		return false
	}
	writes, all := k.notices.Take()
	if all && certain && len(writes) == own {
		return true
	}
	k.touch(writes, all)
	return false
}

// take notes what others wrote.
func (k *Keeper) take() { k.touch(k.notices.Take()) }

func (k *Keeper) touch(writes []nf.Write, all bool) {
	for _, f := range k.families {
		f.told = f.told || !all
		f.touched.All = f.touched.All || !all
		for _, w := range writes {
			writer := fmt.Sprintf("%s (process %d)", w.Program, w.Process)
			for _, o := range w.Objects {
				if f.Holds(o) {
					f.touched.add(o, writer)
					f.told, f.touched.Writer = true, writer
				}
			}
		}
	}
}

// Check is part of [backend.Backend]. It uses a bounded share of a core: what it has not compared is left to the next one.
func (k *Keeper) Check(ctx context.Context) (drifts []backend.Drift, err error) {
	runtime.LockOSThread() // cputime measures this thread
	defer runtime.UnlockOSThread()
	k.take()
	now := time.Now()
	idle := k.notices.Modified() == nil && k.doubt.allows(now) && k.doubt.credit >= doubtCredit/2
	for _, f := range k.families {
		f.touched.All = f.touched.All || idle // not all writes can be noticed, and there is time left
		if !f.touched.Empty() {
			by := &k.budget
			if !f.told {
				by = &k.doubt
			}
			if !by.allows(now) {
				k.notices.Report()
				continue
			}
			measured, spent := cputime.Measure(ctx)
			err = errors.Join(err, f.compare(measured, nil, k.notices.Report))
			by.spend(spent())
		}
		drifts = append(drifts, f.found...)
		f.found = nil
	}
	return drifts, err
}

// compare compares what was touched, or those objects that only selects.
func (f *family) compare(ctx context.Context, only func(nf.Object) bool, report func()) error {
	now, later := f.touched, Touched{Writer: f.touched.Writer}
	if only != nil {
		now.All, later.All, now.Objects = false, f.touched.All, nil
		for o, writer := range f.touched.Objects {
			if only(o) {
				now.add(o, writer)
			} else {
				later.add(o, writer)
			}
		}
	}
	if now.Empty() {
		return nil
	}
	left, drift, err := f.Reread(ctx, now, report)
	if err != nil {
		report()
		return fmt.Errorf("%s: %w", f.Family(), err)
	}
	later.All = later.All || left.All
	for o, writer := range left.Objects {
		later.add(o, writer)
	}
	f.touched = later
	f.told = drift != nil || f.told && !later.Empty() // who wrote once may write again while that is repaired
	if drift != nil {
		f.found = append(f.found, *drift)
	}
	return nil
}

// Modified is part of [backend.Backend].
func (k *Keeper) Modified() <-chan struct{} { return k.notices.Modified() }

// Forget makes the next Sync read everything.
func (k *Keeper) Forget() {
	for _, f := range k.families {
		f.Forget()
		f.touched = Touched{}
	}
}

// Close closes the notices.
func (k *Keeper) Close() error { return k.notices.Close() }

const (
	// triggeredCredit is some comparisons of large tables: a firewall that restarts flushes one table after the other, and each
	// is repaired at once.
	triggeredCredit = 5 * time.Second
	// doubtShare and doubtCredit are for what nobody is known to have written.
	doubtShare  = 0.005
	doubtCredit = 200 * time.Millisecond
)

// budget limits processor time to a share of a core. Unused time accumulates up to most, so that a single change is compared
// at once.
type budget struct {
	share  float64
	most   time.Duration
	credit time.Duration
	at     time.Time
}

// allows reports whether any processor time is left.
func (b *budget) allows(now time.Time) bool {
	b.credit = min(b.most, b.credit+time.Duration(b.share*float64(now.Sub(b.at))))
	b.at = now
	return b.credit > 0
}

func (b *budget) spend(d time.Duration) { b.credit -= d }
