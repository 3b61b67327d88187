// Package keeper keeps rules in the kernel equal to plans, whatever others write there.
//
// What the kernel holds is known from what was written or read last, and from the kernel's notifications of all
// transactions. What another program wrote is read again, and compared with what should be there; nothing is remembered of
// our own writes but what they wrote.
//
//   - [nf.Watch] receives all notifications, and keeps what was written to our tables. Transactions are numbered without gaps, so it
//     knows whether it missed any. While we write more than 1,000 objects it leaves the group; the generation then shows whether
//     another program wrote.
//   - [Keeper] knows what was touched since it was last compared. A Sync compares what is quick, writes, and asks whether there were
//     exactly our transactions; otherwise what was written is touched. Check compares what is touched, within one budget.
//   - A backend knows what the kernel had when it was last read or written. A difference is corrected in that knowledge, and the next
//     diff repairs it.
//
// When each backend decided by itself what to compare, both had holes: an added element of a large set, or a chain that was
// changed while it was written, could stay for good. An engine for both diffs would cost memory for each element, and our own
// transactions cannot be recognised by the program's name (others run nft too) or the process id (it is that of a thread).
package keeper

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/host"
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
	// Family is the address family of the rules.
	Family() cluster.Family
	// Begin returns the writes that make the rules equal to a plan. touched is what was written since it was last compared; rules
	// that were read before the first Sync are read again if it is not empty.
	Begin(ctx context.Context, p *plan.Plan, touched Touched) Pass
	// Holds reports whether an object belongs to the rules, or leads to them.
	Holds(nf.Object) bool
	// Reread compares what was touched with what should be there. What differs is known for what it is after that, so that the
	// next Begin repairs it. It returns what it has left, which is all of it if it fails, and nothing without rules that are
	// known to be in the kernel. If later is nil it does what takes some milliseconds. Otherwise it may pass on work that takes
	// long, which runs in a goroutine of its own: when it ends, Reread is called again, touched or not.
	Reread(ctx context.Context, touched Touched, later Later) (left Touched, drift *backend.Drift, err error)
	// Forget makes the next Begin read the kernel's state.
	Forget()
}

// Later runs work in a goroutine of its own. It returns at once.
type Later func(work func(context.Context))

// Pass is the work of one Sync in one family. Its methods are called in this order.
type Pass interface {
	// Size is about how many objects will be written.
	Size() int
	// Put makes new packets meet the plan, Finish removes what is unused after that.
	Put()
	Finish()
	// Transactions returns how many transactions were made, and whether that is certain.
	Transactions() (n int, certain bool)
	// End records what the kernel holds now, and returns the result. alone means that no other program wrote since Begin.
	End(alone bool) backend.Result
}

// Touched is what was written and has to be compared. The zero value is nothing.
type Touched struct {
	// All means that anything may have been written, otherwise only Objects.
	All     bool
	Objects map[nf.Object]struct{}
	// Writer names the last program that is known to have written.
	Writer string
}

// maxTouched is the number of objects above which all are compared.
const maxTouched = 10_000

// TouchedBy returns what was touched if all or some objects were.
func TouchedBy(all bool, objects []nf.Object) Touched {
	t := Touched{All: all}
	for _, o := range objects {
		t.add(o)
	}
	return t
}

// Empty reports whether nothing was written.
func (t Touched) Empty() bool { return !t.All && len(t.Objects) == 0 }

// add adds an object.
func (t *Touched) add(o nf.Object) {
	if t.Objects == nil {
		t.Objects = map[nf.Object]struct{}{}
	}
	t.Objects[o] = struct{}{}
	t.All = t.All || len(t.Objects) > maxTouched
}

// Keeper is a [backend.Backend] without the parts that a mode adds. One goroutine uses it.
type Keeper struct {
	notices  Notices
	families []*family
	// written is the budget for what somebody wrote, possible that for what nobody is known to have written.
	written, possible budget
	// open ends with the Keeper, and with it what runs later.
	open    context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// family is one family's rules with what others did to them.
type family struct {
	Rules
	touched Touched
	// written means that somebody is known to have written what was touched.
	written bool
	// again means that what Reread has passed on has ended.
	again atomic.Bool
	// found are drifts that Check has not returned yet.
	found []backend.Drift
}

// New returns a Keeper. share is the part of a core that comparing what others wrote may use.
func New(notices Notices, share float64, rules ...Rules) *Keeper {
	k := &Keeper{notices: notices, written: budget{share: share, most: writtenCredit}, possible: budget{share: possibleShare, most: possibleCredit}}
	k.open, k.cancel = context.WithCancel(context.Background())
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
		touched := f.touched
		if f.compare(ctx, nil) != nil { // what others wrote must not be taken for our own
			f.Forget()
		}
		pass := f.Begin(ctx, p, touched)
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
	alone := true
	if paused {
		alone = k.notices.Resume(own)
		for _, f := range k.families {
			f.touched.All = f.touched.All || !alone
		}
		own = 0 // and Take returns what was written before the pause
	}
	writes, all := k.notices.Take()
	if alone && all && certain && len(writes) == own {
		return true
	}
	k.touch(writes, all, own == 0)
	return false
}

// take notes what others wrote.
func (k *Keeper) take() {
	writes, all := k.notices.Take()
	k.touch(writes, all, true)
}

// touch notes writes. others means that none is our own.
func (k *Keeper) touch(writes []nf.Write, all, others bool) {
	for _, f := range k.families {
		f.written = f.written || !all
		f.touched.All = f.touched.All || !all
		for _, w := range writes {
			for _, o := range w.Objects {
				if !f.Holds(o) {
					continue
				}
				f.touched.add(o)
				if f.written = true; others {
					f.touched.Writer = fmt.Sprintf("%s (process %d)", strings.Trim(strconv.Quote(w.Program), `"`), w.Process) // anything may be a name
				}
			}
		}
	}
}

// Check is part of [backend.Backend]. It uses a bounded share of a core: what it has not compared is left to the next one.
func (k *Keeper) Check(ctx context.Context) (drifts []backend.Drift, err error) {
	runtime.LockOSThread() // MeasureCPU measures this thread
	defer runtime.UnlockOSThread()
	k.take()
	now := time.Now()
	// Without notifications some writes cannot be noticed: everything is compared when there is time for it.
	unnoticed := k.notices.Modified() == nil && k.possible.allows(now) && k.possible.plenty()
	for _, f := range k.families {
		f.touched.All = f.touched.All || unnoticed
		drift, failed := k.check(ctx, f, now)
		drifts, err = append(drifts, drift...), errors.Join(err, failed)
	}
	return drifts, err
}

// check compares what was touched if the budget allows it, and returns what was found since the last one.
func (k *Keeper) check(ctx context.Context, f *family, now time.Time) (found []backend.Drift, err error) {
	by := &k.possible
	if f.written {
		by = &k.written
	}
	switch again := f.again.Load(); {
	case !again && f.touched.Empty():
	case !again && !by.allows(now):
		k.notices.Report()
	default:
		f.again.Store(false)
		measured, spent := host.MeasureCPU(ctx)
		err = f.compare(measured, func(work func(context.Context)) { k.running.Go(func() { k.later(f, by, work) }) })
		if by.spend(spent()); !f.touched.Empty() {
			k.notices.Report()
		}
	}
	found, f.found = f.found, nil
	return found, err
}

// laterTimeout is more than it takes to read the largest tables.
const laterTimeout = 5 * time.Minute

// later does what a family has passed on.
func (k *Keeper) later(f *family, by *budget, work func(context.Context)) {
	runtime.LockOSThread() // MeasureCPU measures this thread
	defer runtime.UnlockOSThread()
	ctx, cancel := context.WithTimeout(k.open, laterTimeout)
	defer cancel()
	ctx, spent := host.MeasureCPU(ctx)
	work(ctx)
	by.spend(spent())
	f.again.Store(true)
	k.notices.Report()
}

// compare compares what was touched.
func (f *family) compare(ctx context.Context, later Later) error {
	if f.touched.Empty() && later == nil {
		return nil
	}
	left, drift, err := f.Reread(ctx, f.touched, later)
	left.Writer = f.touched.Writer
	f.touched, f.written = left, drift != nil || f.written && !left.Empty() // who wrote may write again while that is repaired
	if drift != nil {
		f.found = append(f.found, *drift)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f.Family(), err)
	}
	return nil
}

// CheckSoon is part of [backend.Backend]: nothing is done in parts that are in a hurry.
func (*Keeper) CheckSoon() bool { return false }

// ReadEarly is part of [backend.Backend]: nothing is read early.
func (*Keeper) ReadEarly(context.Context) {}

// Modified is part of [backend.Backend].
func (k *Keeper) Modified() <-chan struct{} { return k.notices.Modified() }

// Forget makes the next Sync read everything.
func (k *Keeper) Forget() {
	k.notices.Take()
	for _, f := range k.families {
		f.Forget()
		f.touched = Touched{}
	}
}

// Close ends what runs later, and closes the notices.
func (k *Keeper) Close() error {
	k.cancel()
	k.running.Wait()
	return k.notices.Close()
}

const (
	// writtenCredit is some comparisons of large tables: a firewall that restarts flushes one table after the other, and each
	// is repaired at once.
	writtenCredit = 5 * time.Second
	// possibleShare and possibleCredit are for what nobody is known to have written.
	possibleShare  = 0.005
	possibleCredit = 200 * time.Millisecond
)

// budget limits processor time to a share of a core. Unused time accumulates up to most, so that a single change is compared
// at once. It is safe for concurrent use.
type budget struct {
	share float64
	most  time.Duration

	mu     sync.Mutex
	credit time.Duration
	at     time.Time
}

// allows reports whether any processor time is left.
func (b *budget) allows(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.credit = min(b.most, b.credit+time.Duration(b.share*float64(now.Sub(b.at))))
	b.at = now
	return b.credit > 0
}

// plenty reports whether half of what accumulates is left.
func (b *budget) plenty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.credit >= b.most/2
}

func (b *budget) spend(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.credit -= d
}
