// Package conntracktest is a fake of package conntrack, for tests.
package conntracktest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/conntrack"
)

// Fake is a Table in memory. Like the kernel it has one entry for both ends of a flow, lets a sweep miss entries that
// are added behind it, and may fail.
type Fake struct {
	flows []conntrack.Flow
	// Sweeps counts the sweeps that were begun, Seen the entries that they visited.
	Sweeps, Seen int
	// Interrupt is the number of sweeps to end in the middle of the table, as Partial.
	Interrupt int
	// FailReads and FailDeletes are the numbers of these calls to fail.
	FailReads, FailDeletes int
}

var _ conntrack.Table = (*Fake)(nil)

// Add adds a flow. It refuses a flow with mixed families, or whose ends have an entry already, as the kernel would.
func (f *Fake) Add(flow conntrack.Flow) error {
	switch {
	case !flow.Source.IsValid() || !flow.Destination.IsValid() || !flow.ReplySource.IsValid():
		return fmt.Errorf("add the flow %v: %w: an end is missing", flow, unix.EINVAL)
	case flow.Source.Addr().Is4() != flow.Destination.Addr().Is4() || flow.Source.Addr().Is4() != flow.ReplySource.Addr().Is4():
		return fmt.Errorf("add the flow %v: %w: its ends are of two families", flow, unix.EINVAL)
	case flow.Kind == conntrack.UnansweredTCP && flow.Translated():
		return fmt.Errorf("add the flow %v: %w: an unanswered TCP connection of this kind is not translated", flow, unix.EINVAL)
	case flow.Kind > conntrack.UnansweredTCP && !flow.Translated():
		return fmt.Errorf("add the flow %v: %w: a %s entry is translated", flow, unix.EINVAL, flow.Kind)
	case slices.ContainsFunc(f.flows, func(o conntrack.Flow) bool {
		return o.Kind == flow.Kind && o.Source == flow.Source && o.Destination == flow.Destination
	}):
		return fmt.Errorf("add the flow %v: %w", flow, unix.EEXIST)
	}
	f.flows = append(f.flows, flow)
	return nil
}

// Flows returns the entries in the order in which they were added.
func (f *Fake) Flows() []conntrack.Flow { return slices.Clone(f.flows) }

// Settle is part of [conntrack.Table].
func (f *Fake) Settle(ctx context.Context) error { return context.Cause(ctx) }

// Sweep is part of [conntrack.Table].
func (f *Fake) Sweep(ctx context.Context, family conntrack.Family, kind conntrack.Kind, unwanted func(*conntrack.Flow) bool) (conntrack.Swept, error) {
	f.Sweeps++
	if f.FailReads > 0 {
		f.FailReads--
		return conntrack.Swept{}, fmt.Errorf("read the table of tracked %s connections: the fake is set to fail: %w", family, unix.ENOBUFS)
	}
	if family != conntrack.IPv4 && family != conntrack.IPv6 {
		return conntrack.Swept{}, fmt.Errorf("read the table of tracked connections of family %d: %w", family, unix.EINVAL)
	}
	all := slices.DeleteFunc(slices.Clone(f.flows), func(flow conntrack.Flow) bool {
		return flow.Kind != kind || flow.Source.Addr().Is4() != (family == conntrack.IPv4)
	})
	var done conntrack.Swept
	if f.Interrupt > 0 {
		f.Interrupt--
		all, done.Partial = all[:len(all)/2], true
	}
	var failed []error
	for _, flow := range all {
		if err := ctx.Err(); err != nil {
			return done, errors.Join(err, errors.Join(failed...))
		}
		done.Seen++
		f.Seen++
		seen := flow // changes by unwanted must not reach the table
		if !unwanted(&seen) {
			continue
		}
		if f.FailDeletes > 0 {
			f.FailDeletes--
			failed = append(failed, fmt.Errorf("delete the tracked %s flow %s to %s: %w", flow.Kind, flow.Source, flow.Destination, unix.EBUSY))
			continue
		}
		f.flows = slices.DeleteFunc(f.flows, func(o conntrack.Flow) bool { return o == flow })
		done.Deleted++
	}
	return done, errors.Join(failed...)
}

// Close is part of [conntrack.Table].
func (f *Fake) Close() error { return nil }
