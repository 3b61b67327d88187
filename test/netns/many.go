//go:build linux

package netns

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// SendAll sends all probes, up to 64 in parallel, and returns the answers in the
// order of the probes. Many dropped probes take little longer than one.
func SendAll(probes ...Probe) []Answer {
	answers := make([]Answer, len(probes))
	work(64, len(probes), func(i int) { answers[i] = probes[i].Send() })
	return answers
}

// Spread sends the probe n times, Parallel at a time, and returns the distribution
// of the answers. A probe with a fixed source port is sent sequentially.
func (p Probe) Spread(n int) Tally {
	p = p.defaults()
	if p.Source.Port() != 0 {
		p.Parallel = 1
	}
	sum := newCounter()
	work(p.Parallel, n, func(int) { sum.add(p.Send()) })
	return sum.sum()
}

// work calls f for every number below n, with the given number of workers.
func work(workers, n int, f func(i int)) {
	var next atomic.Int64
	var group sync.WaitGroup
	for range min(workers, n) {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	group.Wait()
}

// spaced returns the time between two connections: ten times the given one with a value
// of [PatienceVariable] above the default, because an emulated machine drops packets
// when its only processor is always busy with connections.
func (p Probe) spaced(interval time.Duration) time.Duration {
	if clock := p.From.lab.patience; clock != nil && clock.limit > patienceLimit {
		return 10 * interval
	}
	return interval
}

// Stream is a steady stream of new connections in the background.
type Stream struct {
	sum    *counter
	cancel context.CancelFunc
	ended  chan struct{}
}

// Stream opens perSecond new connections per second until it is stopped or the
// context is done. An overloaded machine lowers the rate, as does [PatienceVariable];
// the tally has the actual number.
func (p Probe) Stream(ctx context.Context, perSecond int) *Stream {
	p = p.defaults()
	ctx, cancel := context.WithCancel(ctx)
	s := &Stream{sum: newCounter(), cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		pace(ctx, p.spaced(time.Second/time.Duration(max(perSecond, 1))), p.Timeout, func() { s.sum.add(p.Send()) })
	}()
	return s
}

// Tally returns a summary of the answers so far.
func (s *Stream) Tally() Tally { return s.sum.sum() }

// Stop ends the stream, waits for pending answers and returns the summary. It may be
// called several times.
func (s *Stream) Stop() Tally {
	s.cancel()
	<-s.ended
	return s.sum.sum()
}

// Until sends the probe repeatedly until a wanted answer arrives, and returns the
// time from the call to that answer. It sends a probe every millisecond (see [Probe.Every]) without
// waiting for earlier ones, so that the time is equally precise whether packets are
// dropped or refused. Each attempt is a new connection; its Timeout is 50 ms unless
// the probe sets one.
//
// If the context is done first, the error contains the last answer.
func (p Probe) Until(ctx context.Context, wanted func(Answer) bool) (time.Duration, Answer, error) {
	if p.Timeout == 0 {
		p.Timeout = 50 * time.Millisecond
	}
	p = p.defaults()
	started := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		mu          sync.Mutex
		met         bool
		first, last Answer
	)
	every := p.Every
	if every == 0 {
		every = p.spaced(time.Millisecond)
	}
	pace(ctx, every, p.Timeout, func() {
		answer := p.Send()
		mu.Lock()
		defer mu.Unlock()
		last = answer
		if !wanted(answer) {
			return
		}
		arrived := func(a Answer) time.Time { return a.Sent.Add(a.Latency) }
		if !met || arrived(answer).Before(arrived(first)) {
			first, met = answer, true
		}
		cancel()
	})
	if !met {
		return time.Since(started), last, fmt.Errorf("%v: waited %v for the wanted answer; the last one: %v: %w",
			p, time.Since(started).Round(time.Millisecond), last, context.Cause(ctx))
	}
	return first.Sent.Add(first.Latency).Sub(started), first, nil
}

// pace calls f once per interval, each time on a new goroutine, until the context is
// done, and then waits for the pending calls. It catches up after a delay. A call
// takes no longer than the timeout, so the number of pending calls is bounded; on a
// machine that is too slow the rate falls.
func pace(ctx context.Context, interval, timeout time.Duration, f func()) {
	var calls sync.WaitGroup
	defer calls.Wait()
	slots := make(chan struct{}, 2*timeout/interval+16)
	tick := time.NewTicker(max(interval, time.Millisecond))
	defer tick.Stop()
	started := time.Now()
	for sent := 0; ; {
		for due := 1 + int(time.Since(started)/interval); sent < due; sent++ {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			calls.Go(func() { f(); <-slots })
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
