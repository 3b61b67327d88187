//go:build linux

package trace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
)

// queue is how many bytes of events are kept until they are read: those of some 500 packets.
const queue = 8 << 20

// poll is how long one wait for events takes at most.
const poll = 100 * time.Millisecond

// kernelTracer is the kernel's.
type kernelTracer struct {
	events *netlink.Socket
	asked  *netlink.Socket
	tables []nft.Table
	closed bool
	decoder
	described map[ruleKey]Description
}

// Open begins a trace in the network namespace of the calling thread. Its errors wrap [ErrRunning], [ErrOldKernel] or the
// kernel's number.
func Open(ctx context.Context, f Filter) (Tracer, error) {
	if err := f.check(); err != nil {
		return nil, fmt.Errorf("trace packets: %w", err)
	}
	t := &kernelTracer{decoder: newDecoder(), described: map[ruleKey]Description{}}
	if err := t.open(ctx, &f); err != nil {
		return nil, errors.Join(fmt.Errorf("trace packets: %w", err), t.Close())
	}
	return t, nil
}

func (t *kernelTracer) open(ctx context.Context, f *Filter) (err error) {
	if t.asked, err = netlink.Open(); err != nil {
		return err
	}
	// Subscribed first, so that no event is missed.
	if t.events, err = netlink.Subscribe(unix.NFNLGRP_NFTRACE, queue); err != nil {
		return netlink.WithAdvice(err, netlink.Advice)
	}
	for _, family := range []knftables.Family{knftables.IPv4Family, knftables.IPv6Family} {
		if !f.has(family) {
			continue
		}
		// Either family's table means that another trace runs.
		if err := t.otherOwner(family); err != nil {
			return err
		}
		table, err := nft.Open(family, Table)
		if err != nil {
			return err
		}
		t.tables = append(t.tables, table)
		b := table.NewBatch()
		f.write(b, family)
		if err := table.Commit(ctx, b); err != nil {
			if ctx.Err() != nil { // the kernel may have made the table after that
				return err
			}
			return t.explain(err, family)
		}
	}
	return nil
}

// has reports whether packets of a family can be selected.
func (f *Filter) has(family knftables.Family) bool {
	four := family == knftables.IPv4Family
	if len(f.To) == 0 {
		return f.From.Addr().Is4() == four
	}
	return slices.ContainsFunc(f.To, func(d Destination) bool { return d.Addr.Is4() == four })
}

// Of linux/netfilter.h: enum nf_inet_hooks.
const (
	prerouting = iota
	input
	forward
	output
	postrouting
)

const (
	// first is a priority before connection tracking and all chains of firewalls; only defragmentation comes before.
	first = -350
	// last is a priority after all chains of firewalls and address translation.
	last = 350
)

// write writes the table of a family: two chains select packets, before anything else sees them.
func (f *Filter) write(b *nft.Batch, family knftables.Family) {
	b.AddOwnedTable()
	b.AddChain(Selected, "begins the trace of a packet")
	b.AddRule(Selected, nft.Rule{nft.LimitRate(f.PerSecond), nft.SetTrace{}})
	hooked := func(name string, hook uint32, priority int32) {
		b.AddBaseChain(nft.Chain{Name: name, Type: "filter", Hook: hook, Priority: priority})
	}
	hooked("select-prerouting", prerouting, first)
	hooked("select-output", output, first)
	for _, rule := range f.rules(family) {
		b.AddRule("select-prerouting", rule)
		b.AddRule("select-output", rule)
	}
	hooked(AfterPrerouting, prerouting, last)
	hooked(AfterOutput, output, last)
	hooked(AfterInput, input, last)
	hooked(AfterPostrouting, postrouting, last)
}

// rules select packets of a family, one rule for each destination.
func (f *Filter) rules(family knftables.Family) (rules []nft.Rule) {
	to := f.To
	if len(to) == 0 {
		to = []Destination{{}}
	}
	for _, d := range to {
		if d.Addr.IsValid() && d.Addr.Is4() != (family == knftables.IPv4Family) {
			continue
		}
		var rule nft.Rule
		if f.From.IsValid() && f.From.Bits() > 0 {
			rule = append(rule, nft.SourceIn{Prefix: f.From})
		}
		switch {
		case d.Addr.IsValid() && d.Addr.IsUnspecified():
			rule = append(rule, nft.DestinationIsLocal{})
		case d.Addr.IsValid():
			rule = append(rule, nft.DestinationIs(d.Addr))
		}
		for _, part := range f.parts(d) {
			rules = append(rules, slices.Concat(rule, part, nft.Rule{nft.Goto(Selected)}))
		}
	}
	return rules
}

// parts select packets to an address by protocol, port and flags: each part is of one rule.
func (f *Filter) parts(d Destination) []nft.Rule {
	switch {
	case f.Opening && d.Port == 0:
		return []nft.Rule{{nft.OpensTCP{}}, {nft.IsNotTCP{}}}
	case f.Opening && d.Protocol == unix.IPPROTO_TCP:
		return []nft.Rule{{nft.OpensTCP{Port: d.Port}}}
	case d.Port != 0:
		return []nft.Rule{{nft.DestinationPortIs{Protocol: d.Protocol, Port: d.Port}}}
	default:
		return []nft.Rule{{}}
	}
}

// otherOwner returns ErrRunning if a family's table exists.
func (t *kernelTracer) otherOwner(family knftables.Family) error {
	exists := false
	err := t.asked.Get(requestHeader(unix.NFT_MSG_GETTABLE, familyNumber(family)), func(b []byte) []byte {
		return netlink.AppendString(b, unix.NFTA_TABLE_NAME, Table)
	}, func(netlink.Message) error {
		exists = true
		return nil
	})
	switch {
	case exists:
		return ErrRunning
	case errors.Is(err, unix.ENOENT):
		return nil
	default:
		return netlink.WithAdvice(err, netlink.Advice)
	}
}

// explain returns what a refused table means.
func (t *kernelTracer) explain(err error, family knftables.Family) error {
	switch refused, _ := errors.AsType[*nft.BatchError](err); {
	case errors.Is(t.otherOwner(family), ErrRunning):
		return ErrRunning // it began just now
	case refused != nil && refused.Op == "add table" && (refused.Errno == unix.EINVAL || refused.Errno == unix.EOPNOTSUPP):
		return fmt.Errorf("%w: %w", ErrOldKernel, refused.Errno)
	default:
		return err
	}
}

// Next is part of [Tracer].
func (t *kernelTracer) Next(ctx context.Context) (events []Event, lost bool, _ error) {
	if t.closed {
		return nil, false, ErrClosed
	}
	for ctx.Err() == nil {
		if err := t.events.Wait(poll); err != nil {
			return nil, false, fmt.Errorf("wait for the events of packets: %w", err)
		}
		lost, err := t.events.Drain(func(m netlink.Message) {
			if e, ok := t.decode(m); ok {
				events = append(events, e)
			}
		})
		if err != nil {
			return events, lost, fmt.Errorf("receive the events of packets: %w", err)
		}
		if lost || len(events) > 0 {
			return events, lost, nil
		}
	}
	return nil, false, nil
}

// Close is part of [Tracer].
func (t *kernelTracer) Close() error {
	if t.closed {
		return nil
	}
	t.closed = true
	var failed []error
	for _, table := range t.tables {
		failed = append(failed, table.Close())
	}
	for _, socket := range []*netlink.Socket{t.events, t.asked} {
		if socket != nil {
			failed = append(failed, socket.Close())
		}
	}
	return errors.Join(failed...)
}

// familyNumber is the NFPROTO_* of ip or ip6.
func familyNumber(family knftables.Family) byte {
	if family == knftables.IPv6Family {
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_IPV4
}

// requestHeader is the header of a request to nf_tables.
func requestHeader(command int, family byte) netlink.Header {
	return netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | uint16(command), Family: family}
}
