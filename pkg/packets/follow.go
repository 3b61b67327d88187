package packets

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft/trace"
)

// Trace is a trace to follow.
type Trace struct {
	Tracer trace.Tracer
	Names  *Names
	// Why returns why the kernel does not send a packet on, "" if it does not know; it may be nil.
	Why func(*trace.Headers) string
	// Count is the number of packets after which it ends.
	Count int
	// Show is called with the report on each packet.
	Show func(*v1alpha1.PacketTrace) error
}

// Result counts the packets of a trace.
type Result struct {
	// Packets is the number of packets; Refused that of those that did not arrive, or not at an endpoint, and Unknown that of those that were not followed
	// to their end.
	Packets, Refused, Unknown int
	// Lost reports that the kernel had more events than could be received.
	Lost bool
}

// Follow follows a trace until it has shown Count packets or ctx ends, which is no error. It does not close the tracer.
func (t *Trace) Follow(ctx context.Context) (r Result, _ error) {
	all := newAssembler()
	for ctx.Err() == nil && r.Packets < t.Count {
		if err := t.read(ctx, all, &r); err != nil {
			return r, err
		}
		if err := t.show(all.finished(time.Now()), &r); err != nil {
			return r, err
		}
	}
	// Read the events that the kernel reported before ctx ended.
	if err := t.read(context.WithoutCancel(ctx), all, &r); err != nil {
		return r, err
	}
	return r, t.show(all.finished(time.Now().Add(quiet)), &r)
}

// read reads events for a moment.
func (t *Trace) read(ctx context.Context, all *assembler, r *Result) error {
	ctx, cancel := context.WithTimeout(ctx, quiet)
	defer cancel()
	events, lost, err := t.Tracer.Next(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	for _, e := range events {
		d, err := t.Tracer.Describe(e)
		if err != nil {
			return err
		}
		all.add(event{e, d}, now)
	}
	if lost {
		r.Lost = true
		all.lose()
	}
	return nil
}

func (t *Trace) show(found []*packet, r *Result) error {
	for _, p := range found {
		if r.Packets == t.Count {
			return nil
		}
		report := p.report(t.Names, t.Why)
		r.Packets++
		switch report.Verdict {
		case v1alpha1.PacketRejected, v1alpha1.PacketDropped, v1alpha1.PacketVanished, v1alpha1.PacketStale:
			r.Refused++
		case v1alpha1.PacketQueued, v1alpha1.PacketIncomplete:
			r.Unknown++
		}
		if err := t.Show(report); err != nil {
			return fmt.Errorf("print a packet: %w", err)
		}
	}
	return nil
}
