package iptables

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Backend is the iptables dataplane. It implements backend.Backend.
type Backend struct {
	opts     Options
	settings Settings
	families []*family
}

var _ backend.Backend = (*Backend)(nil)

// family is one address family's tables and what is known of them.
type family struct {
	renderer
	is   cluster.Family
	door ipt.Tables
	// have is what the kernel holds; nil when that has to be read. last is what was last rendered.
	have, last *ruleset
	// applied is what was last written, for those who only read.
	applied atomic.Pointer[ruleset]
	stuck   map[chainName]bool
	// rules is how many each table has, as of last.
	rules map[string]int
	watch watch
	// retryAt is when what iptables refused is tried again, and retryAfter how long that was put off.
	retryAt    time.Time
	retryAfter time.Duration
}

// Open makes a backend for the network namespace that it is called in, in the variant of iptables that the node uses.
func Open(ctx context.Context, opts Options, settings Settings, families ...cluster.Family) (*Backend, error) {
	variant, err := ipt.Detect(ctx)
	if err != nil {
		return nil, err
	}
	return openVariant(ctx, variant, opts, settings, families)
}

func openVariant(ctx context.Context, variant ipt.Variant, opts Options, settings Settings, families []cluster.Family) (*Backend, error) {
	var doors []ipt.Tables
	for _, family := range families {
		of := ipt.IPv4
		if family == cluster.IPv6 {
			of = ipt.IPv6
		}
		door, err := ipt.Open(ctx, of, variant)
		if err != nil {
			for _, opened := range doors {
				_ = opened.Close() // the error that matters is at hand
			}
			return nil, err
		}
		doors = append(doors, door)
	}
	return New(opts, settings, doors...), nil
}

// CleanupAll removes what this backend, or an earlier program in its place, wrote in either variant of iptables. Where
// there is nothing of that, iptables need not be installed.
func CleanupAll(ctx context.Context, opts Options, settings Settings) error {
	holding, err := ipt.Holding(ctx, tables(), func(table, chain string) bool { return chainName{table, chain}.ours() })
	failed := []error{err}
	for _, variant := range holding {
		b, err := openVariant(ctx, variant, opts, settings, []cluster.Family{cluster.IPv4, cluster.IPv6})
		if err == nil {
			err = errors.Join(b.Cleanup(ctx), b.Close())
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// New makes a backend that writes the given tables, one for each family to be served. Whether invalid packets are dropped
// is decided here, by the settings of the kernel.
func New(opts Options, settings Settings, doors ...ipt.Tables) *Backend {
	b := &Backend{opts: opts, settings: settings}
	for _, door := range doors {
		f := &family{is: cluster.IPv4, door: door, stuck: map[chainName]bool{}, watch: newWatch()}
		if door.Family() == ipt.IPv6 {
			f.is = cluster.IPv6
		}
		f.renderer = renderer{family: f.is, opts: opts, can: probe(door.Features(), settings), without: map[portKey]*leftOut{}}
		b.families = append(b.families, f)
	}
	return b
}

// Sync makes the tables hold what the plan says. A Service that iptables refuses stays left out until it changes, and is
// tried again now and then; its error is told each time.
func (b *Backend) Sync(ctx context.Context, p *plan.Plan) []backend.Result {
	for _, f := range b.families { // before our own programs are heard
		f.hear()
	}
	results := make([]backend.Result, len(b.families))
	ran := false
	for i, f := range b.families {
		start := time.Now()
		results[i] = f.sync(ctx, p, b.settings)
		results[i].Family, results[i].Duration = f.is, time.Since(start)
		ran = ran || results[i].Read || results[i].Rules > 0
	}
	for _, f := range b.families {
		if ran && f.door.Features().Variant == ipt.Legacy {
			f.passOver() // one family's programs take the lock that the other listens to
		}
	}
	return results
}

// maxRefusals bounds how many Services are left out in one sync: each costs a reading of the tables.
const maxRefusals = 16

// sync brings one family to the plan.
func (f *family) sync(ctx context.Context, p *plan.Plan, settings Settings) (result backend.Result) {
	var told []error
	without := f.without
	defer func() {
		if result.Err != nil { // nothing is known of what was to be tried again
			without = maps.Clone(without)
			maps.Copy(without, f.without)
			f.without = without
		}
		f.putOff(len(told) > 0, time.Now(), &result)
		result.Err = errors.Join(append(told, result.Err)...)
	}()
	f.reconsider(p, time.Now())
	result.Read = f.have == nil
	for {
		have := f.have
		f.have = nil // unless all goes well
		unknown := have == nil
		if unknown {
			if have, result.Err = read(ctx, f.door, f.is); result.Err != nil {
				return result
			}
		}
		want := f.render(p, f.last)
		patch := diff(have, want)
		a := &applier{ctx: ctx, door: f.door, settings: settings, stuck: f.stuck,
			writer: newWriter(f.is, p.Node, f.opts, f.can)}
		err := a.apply(patch)
		result.Rules += a.rules
		var refused *refusal
		switch {
		case err == nil:
			result.Tables = f.count(want, patch)
			f.have, f.last = want, want
			f.applied.Store(want)
			f.record(ctx, patch, unknown)
			return result
		case errors.As(err, &refused) && len(told) < maxRefusals:
			told = append(told, err)
			f.leaveOut(refused, want)
		default:
			result.Err = err
			return result
		}
	}
}

// count follows the number of rules in the tables that users ask about.
func (f *family) count(want *ruleset, p *patch) (counts []backend.Table) {
	if f.last == nil {
		f.rules = map[string]int{}
	}
	growth := want.growth(f.last)
	for _, table := range []string{tableFilter, tableNAT} {
		f.rules[table] += growth[table]
		counts = append(counts, backend.Table{Name: table, Rules: f.rules[table], Written: p.written(table)})
	}
	return counts
}

// leftOut is a port that iptables refuses.
type leftOut struct {
	// routes are those that it had then.
	routes []*plan.Route
	cause  error
}

// leaveOut remembers that a port is refused.
func (f *family) leaveOut(r *refusal, want *ruleset) {
	without := maps.Clone(f.without)
	for key, port := range want.ports.All() {
		if key.String() == r.owner {
			without[key] = &leftOut{port.routes, r.cause}
		}
	}
	f.without, f.last = without, nil
}

// What is refused is tried again after firstRetry, and twice as long each time up to lastRetry: a try costs a reading of
// the tables for each.
const (
	firstRetry = time.Minute
	lastRetry  = time.Hour
)

// reconsider takes up again what was left out and changed since, or everything where it is time for that.
func (f *family) reconsider(p *plan.Plan, now time.Time) {
	without := map[portKey]*leftOut{}
	for key, left := range f.without {
		changed := slices.ContainsFunc(left.routes, func(r *plan.Route) bool {
			current, ok := p.Frontends.Get(r.Frontend)
			return !ok || current != r
		})
		if !changed && now.Before(f.retryAt) {
			without[key] = left
		}
	}
	f.without = without
}

// putOff decides when what is left out is tried again, and tells of it.
func (f *family) putOff(refused bool, now time.Time, result *backend.Result) {
	if len(f.without) == 0 {
		f.retryAfter = 0
		return
	}
	if refused {
		f.retryAfter = min(max(firstRetry, 2*f.retryAfter), lastRetry)
		f.retryAt = now.Add(f.retryAfter)
	}
	result.Again = max(f.retryAt.Sub(now), time.Millisecond) // this sync may have taken until then
	for key, left := range f.without {
		result.Refused = append(result.Refused, backend.Refusal{Service: left.routes[0].Service, Port: key.String(), Cause: left.cause})
	}
	slices.SortFunc(result.Refused, func(a, b backend.Refusal) int { return strings.Compare(a.Port, b.Port) })
}

// Cleanup removes our chains and the jumps to them, and those of another program in our place.
func (b *Backend) Cleanup(ctx context.Context) error {
	var failed []error
	for _, f := range b.families {
		f.have = nil
		f.applied.Store(nil)
		failed = append(failed, f.cleanup(ctx))
	}
	return errors.Join(failed...)
}

// Close leaves the tables as they are.
func (b *Backend) Close() error {
	var failed []error
	for _, f := range b.families {
		failed = append(failed, f.door.Close())
	}
	return errors.Join(failed...)
}
