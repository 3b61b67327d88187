// Package tracetest is a fake of package trace, for tests.
package tracetest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft/trace"
)

// Fake stands for the kernel in tests: one network namespace, in which one trace at a time can run.
type Fake struct {
	mu      sync.Mutex
	running *fakeTracer
	refusal error
}

// fakeQueue is the number of packets whose events a Fake keeps until they are read.
const fakeQueue = 500

// Refuse makes Open fail with an error, which Open wraps; nil ends that.
func (f *Fake) Refuse(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refusal = err
}

// Open is what the function [trace.Open] is for the kernel.
func (f *Fake) Open(ctx context.Context, filter trace.Filter) (trace.Tracer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := filter.Check()
	switch {
	case err != nil:
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case f.refusal != nil:
		err = f.refusal
	case f.running != nil:
		err = trace.ErrRunning
	}
	if err != nil {
		return nil, fmt.Errorf("trace packets: %w", err)
	}
	f.running = &fakeTracer{kernel: f, filter: filter, more: make(chan struct{}, 1), descriptions: map[ruleKey]trace.Description{}}
	return f.running, nil
}

// Running reports whether a trace runs: whether there are tables.
func (f *Fake) Running() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.running != nil
}

// Send sends a packet through the rules; events are what the kernel reports of it if it is traced. It is not traced, which is no
// error, if no trace runs or the filter does not select it. It fails for events that the kernel would not report.
func (f *Fake) Send(events ...trace.Event) (traced bool, _ error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := possible(events); err != nil {
		return false, err
	}
	t := f.running
	if t == nil || !selects(&t.filter, events[0].Headers) {
		return false, nil
	}
	if t.queued++; t.queued > fakeQueue {
		t.lost = true
	} else {
		t.events = append(t.events, events...)
	}
	t.wake()
	return true, nil
}

// Break makes the next call of Next fail with an error.
func (f *Fake) Break(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running != nil {
		f.running.broken = err
		f.running.wake()
	}
}

// Declare sets what an event's chain and rule are.
func (f *Fake) Declare(e trace.Event, d trace.Description) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running != nil {
		f.running.descriptions[ruleKey{e.Family, e.Table, e.Chain, e.Handle}] = d
	}
}

// possible rejects events that the kernel does not report of a packet.
func possible(events []trace.Event) error {
	if len(events) == 0 {
		return errors.New("a traced packet has events")
	}
	if first := events[0]; first.Table != trace.Table || first.Chain != trace.Selected || first.Kind != trace.Rule || first.Headers == nil {
		return fmt.Errorf("the first event is not that of chain %s, with headers: %+v", trace.Selected, first)
	}
	for i, e := range events {
		switch {
		case (e.Kind == trace.Rule) != (e.Handle != 0):
			return fmt.Errorf("event %d: only rules have handles: %+v", i, e)
		case (e.Verdict == "jump" || e.Verdict == "goto") != (e.To != ""):
			return fmt.Errorf("event %d: only jumps lead to a chain: %+v", i, e)
		case e.Verdict == "drop" && i < len(events)-1:
			return fmt.Errorf("event %d drops the packet, but there are more", i)
		}
	}
	return nil
}

// selects reports whether the rules of a filter match a packet. Unspecified destinations match any address.
func selects(f *trace.Filter, h *trace.Headers) bool {
	if f.From.IsValid() && !f.From.Contains(h.Source.Addr()) {
		return false
	}
	const tcp, syn, ack = 6, 0x02, 0x10
	if f.Opening && h.Protocol == tcp && h.Flags&(syn|ack) != syn {
		return false
	}
	for _, to := range f.To {
		there := to.Addr == h.Destination.Addr() || to.Addr.IsUnspecified() && to.Addr.Is4() == h.Destination.Addr().Is4()
		if there && (to.Port == 0 || to.Port == h.Destination.Port() && to.Protocol == h.Protocol) {
			return true
		}
	}
	return len(f.To) == 0
}

// ruleKey identifies a rule.
type ruleKey struct {
	family, table, chain string
	handle               uint64
}

// fakeTracer is the Tracer of a Fake, whose mutex guards it.
type fakeTracer struct {
	kernel       *Fake
	filter       trace.Filter
	events       []trace.Event
	queued       int
	lost         bool
	broken       error
	more         chan struct{}
	descriptions map[ruleKey]trace.Description
}

// wake ends the wait of Next.
func (t *fakeTracer) wake() {
	select {
	case t.more <- struct{}{}:
	default:
	}
}

// Next is part of [trace.Tracer].
func (t *fakeTracer) Next(ctx context.Context) (events []trace.Event, lost bool, _ error) {
	for {
		t.kernel.mu.Lock()
		if t.broken != nil || t.lost || len(t.events) > 0 {
			break
		}
		t.kernel.mu.Unlock()
		select {
		case <-t.more:
		case <-ctx.Done():
			return nil, false, nil
		}
	}
	defer t.kernel.mu.Unlock()
	if t.broken != nil {
		return nil, false, t.broken
	}
	events, lost = t.events, t.lost
	t.events, t.lost, t.queued = nil, false, 0
	return events, lost, nil
}

// Describe is part of [trace.Tracer].
func (t *fakeTracer) Describe(e trace.Event) (trace.Description, error) {
	t.kernel.mu.Lock()
	defer t.kernel.mu.Unlock()
	return t.descriptions[ruleKey{e.Family, e.Table, e.Chain, e.Handle}], nil
}

// Close is part of [trace.Tracer].
func (t *fakeTracer) Close() error {
	t.kernel.mu.Lock()
	defer t.kernel.mu.Unlock()
	t.kernel.running = nil
	return nil
}
