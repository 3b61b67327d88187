//go:build linux

package netns

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// SendAll asks all the probes, up to 64 at once, and gives the answers in the
// probes' order. Many drops take little longer than one.
func SendAll(probes ...Probe) []Answer {
	answers := make([]Answer, len(probes))
	work(64, len(probes), func(i int) { answers[i] = probes[i].Send() })
	return answers
}

// Spread asks n times, Parallel at once, and tells how the answers spread. A probe
// with a fixed source port is asked one after the other.
func (p Probe) Spread(n int) Tally {
	p = p.defaults()
	if p.Source.Port() != 0 {
		p.Parallel = 1
	}
	sum := newCounter()
	work(p.Parallel, n, func(int) { sum.add(p.Send()) })
	return sum.sum()
}

// work calls f for every number below n, by so many workers.
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

// Stream is a steady stream of new connections in the background.
type Stream struct {
	sum    *counter
	cancel context.CancelFunc
	ended  chan struct{}
}

// Stream asks perSecond times a second, each on a new connection, until it is
// stopped or the context ends. A machine too busy for the rate lowers it: the
// tally tells how many it were.
func (p Probe) Stream(ctx context.Context, perSecond int) *Stream {
	p = p.defaults()
	ctx, cancel := context.WithCancel(ctx)
	s := &Stream{sum: newCounter(), cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		pace(ctx, time.Second/time.Duration(max(perSecond, 1)), p.Timeout, func() { s.sum.add(p.Send()) })
	}()
	return s
}

// Tally sums up the answers so far.
func (s *Stream) Tally() Tally { return s.sum.sum() }

// Stop ends the stream, waits for the answers under way and sums up. It may be
// called again.
func (s *Stream) Stop() Tally {
	s.cancel()
	<-s.ended
	return s.sum.sum()
}

// Until asks again and again until the answer is as wanted, and tells how long that
// took from the call to the arrival of that answer. A try is sent every
// millisecond without waiting for the ones before, so that the time is as exact
// while packets are dropped as while they are refused. Each try is a connection of
// its own; its Timeout is 50 ms unless the probe sets one.
//
// When the context ends first, the error says so, with the last answer.
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
	pace(ctx, time.Millisecond, p.Timeout, func() {
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

// pace calls f, each time on a goroutine of its own, once per interval, until the
// context ends, and then waits for those under way. What is late is caught up
// with. As one call takes no longer than the time-out, the number under way is
// bounded; on a machine too slow even for that, the rate falls.
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
