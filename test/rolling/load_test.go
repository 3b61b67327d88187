//go:build linux

package rolling

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// rate is new connections a second in all, and for each probe connections that are kept, each with a request after every pause.
type rate struct {
	perSecond, keptEach int
	keptPause           time.Duration
}

// kind is what is counted apart.
type kind struct {
	protocol netns.Protocol
	family   netns.Family
	kept     bool
	service  string
}

// kindOf returns the kind of a probe's connections.
func kindOf(p netns.Probe, kept bool) kind {
	return kind{p.Protocol, netns.FamilyOf(p.To.Addr()), kept, serviceOf(p)}
}

// count is how many requests were sent, and how many of them failed.
type count struct{ sent, failed int }

func (c count) plus(o count) count { return count{c.sent + o.sent, c.failed + o.failed} }

func (c count) String() string { return fmt.Sprintf("%d of %d", c.failed, c.sent) }

// load is connections to all probes in the background.
type load struct {
	begun   time.Time
	cancel  context.CancelFunc
	streams []*netns.Stream
	probes  []netns.Probe
	kept    sync.WaitGroup

	mu     sync.Mutex
	counts map[kind]count
	// first is the first failure of each kind.
	first map[kind]string
}

// start connects until the load is stopped.
func start(ctx context.Context, probes []netns.Probe, r rate) *load {
	l := &load{begun: time.Now(), probes: probes, counts: map[kind]count{}, first: map[kind]string{}}
	ctx, l.cancel = context.WithCancel(ctx)
	for _, probe := range probes {
		l.streams = append(l.streams, probe.Stream(ctx, max(1, r.perSecond/len(probes))))
		for range r.keptEach {
			l.kept.Go(func() { l.keep(ctx, probe, r.keptPause) })
		}
	}
	return l
}

// serviceOf names the Service of a probe.
func serviceOf(p netns.Probe) string {
	for _, s := range services {
		if p.To.Port() == uint16(s.nodePort) || p.To.Addr().String() == s.clusterIPs[0] || p.To.Addr().String() == s.clusterIPs[1] {
			return s.name
		}
	}
	return ""
}

// keep sends requests on one connection. It opens another one after a failure, or when the server has closed it.
func (l *load) keep(ctx context.Context, probe netns.Probe, pause time.Duration) {
	var flow *netns.Flow
	for ctx.Err() == nil {
		var answer netns.Answer
		if flow != nil && probe.Protocol == netns.TCP && flow.Ended() {
			flow.Close()
			flow = nil
		}
		if flow == nil {
			flow, answer = probe.Open()
		} else {
			answer = flow.Ask()
		}
		l.add(kindOf(probe, true), probe, answer)
		if answer.Verdict != netns.Answered && flow != nil && probe.Protocol == netns.TCP {
			flow.Close()
			flow = nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	if flow != nil {
		flow.Close()
	}
}

func (l *load) add(k kind, probe netns.Probe, answer netns.Answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.counts[k]
	c.sent++
	if answer.Verdict != netns.Answered {
		if c.failed++; c.failed == 1 {
			l.first[k] = l.describe(probe, answer)
		}
	}
	l.counts[k] = c
}

// describe says when a failed request was sent.
func (l *load) describe(probe netns.Probe, failure netns.Answer) string {
	return fmt.Sprintf("%s: %s, sent after %s", probe, failure, failure.Sent.Sub(l.begun).Round(time.Millisecond))
}

// stop ends the load, and returns the counts with the first failure of each kind.
func (l *load) stop() (map[kind]count, map[kind]string) {
	l.cancel()
	for i, stream := range l.streams {
		tally, probe := stream.Stop(), l.probes[i]
		k := kindOf(probe, false)
		c := l.counts[k]
		l.counts[k] = c.plus(count{tally.Sent, tally.Failed()})
		if l.first[k] == "" && tally.Failed() > 0 {
			l.first[k] = l.describe(probe, tally.Failures[0])
		}
	}
	l.kept.Wait()
	return l.counts, l.first
}
