//go:build linux

package netns

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// Tally sums up the answers to many probes.
type Tally struct {
	// Sent is the number of probes, Verdicts the number of probes by verdict.
	Sent     int
	Verdicts map[Verdict]int
	// Endpoints counts answers by the answering host, Reached by the address and port
	// at which it was reached, Sources by the source that it saw.
	Endpoints map[string]int
	Reached   map[netip.AddrPort]int
	Sources   map[netip.Addr]int
	// Pairs counts answers by the answering host and the source that it saw.
	Pairs map[Pair]int
	// Failures are the first 100 answers whose verdict is not Answered.
	Failures []Answer
	// LongestGap is the longest time between two consecutive answered probes, by the
	// time of sending.
	LongestGap time.Duration
}

// Pair is an endpoint and the source that it saw.
type Pair struct {
	Endpoint string
	Source   netip.Addr
}

// Failed returns the number of probes that were not answered.
func (t Tally) Failed() int { return t.Sent - t.Verdicts[Answered] }

// String describes the tally in one line: verdicts, endpoints, sources.
func (t Tally) String() string {
	parts := []string{fmt.Sprintf("%d sent", t.Sent)}
	for _, verdict := range slices.Sorted(maps.Keys(t.Verdicts)) {
		parts = append(parts, fmt.Sprintf("%d %v", t.Verdicts[verdict], verdict))
	}
	text := strings.Join(parts, ", ")
	if len(t.Endpoints) > 0 {
		text += "; by " + counts(t.Endpoints, cmp.Compare[string])
	}
	if len(t.Sources) > 0 {
		text += "; seen from " + counts(t.Sources, netip.Addr.Compare)
	}
	return text
}

// counts formats counts in the order of their keys.
func counts[K comparable](count map[K]int, compare func(a, b K) int) string {
	var parts []string
	for _, key := range slices.SortedFunc(maps.Keys(count), compare) {
		parts = append(parts, fmt.Sprintf("%v ×%d", key, count[key]))
	}
	return strings.Join(parts, ", ")
}

// counter builds a Tally.
type counter struct {
	mu       sync.Mutex
	tally    Tally
	answered []time.Time // when the answered probes were sent
}

func newCounter() *counter {
	return &counter{tally: Tally{
		Verdicts: map[Verdict]int{}, Endpoints: map[string]int{},
		Reached: map[netip.AddrPort]int{}, Sources: map[netip.Addr]int{}, Pairs: map[Pair]int{},
	}}
}

func (c *counter) add(answer Answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tally.Sent++
	c.tally.Verdicts[answer.Verdict]++
	if answer.Verdict != Answered {
		if len(c.tally.Failures) < 100 {
			c.tally.Failures = append(c.tally.Failures, answer)
		}
		return
	}
	c.tally.Endpoints[answer.Endpoint]++
	c.tally.Reached[answer.Reached]++
	c.tally.Sources[answer.Source.Addr()]++
	c.tally.Pairs[Pair{answer.Endpoint, answer.Source.Addr()}]++
	c.answered = append(c.answered, answer.Sent)
}

// sum returns a copy of the tally so far.
func (c *counter) sum() Tally {
	c.mu.Lock()
	defer c.mu.Unlock()
	tally := c.tally
	tally.Verdicts, tally.Endpoints = maps.Clone(tally.Verdicts), maps.Clone(tally.Endpoints)
	tally.Reached, tally.Sources = maps.Clone(tally.Reached), maps.Clone(tally.Sources)
	tally.Pairs = maps.Clone(tally.Pairs)
	tally.Failures = slices.Clone(tally.Failures)
	slices.SortFunc(c.answered, time.Time.Compare)
	for i := 1; i < len(c.answered); i++ {
		tally.LongestGap = max(tally.LongestGap, c.answered[i].Sub(c.answered[i-1]))
	}
	return tally
}
