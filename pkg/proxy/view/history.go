package view

import (
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
)

// maxMinutes is the number of minutes that are remembered.
const maxMinutes = 60

// history counts what happened in each of the last minutes. Its memory does not depend on how much that was.
type history struct {
	// minutes holds minute n of the Unix time at n modulo maxMinutes.
	minutes [maxMinutes]v1alpha1.Minute
}

// at returns the minute of a time, which must not be in the past by maxMinutes or more.
func (h *history) at(t time.Time) *v1alpha1.Minute {
	start := t.Truncate(time.Minute)
	m := &h.minutes[slot(start)]
	if !m.Start.Equal(start) {
		*m = v1alpha1.Minute{Start: start}
	}
	return m
}

// slot returns the index of a minute.
func slot(start time.Time) int { return int(start.Unix() / 60 % maxMinutes) }

// add records a sync.
func (h *history) add(s *v1alpha1.Sync, finished time.Time, changes int) {
	m := h.at(finished)
	m.Syncs++
	m.Seconds += s.Seconds
	m.Slowest = max(m.Slowest, s.Seconds)
	m.Changes += changes
	if len(s.Failed()) > 0 {
		m.Failed++
	}
}

// list returns the minutes from the one of a start until now, the oldest first. Minutes in which nothing happened are 0.
func (h *history) list(started, now time.Time) []v1alpha1.Minute {
	last := now.Truncate(time.Minute)
	first := last.Add(-(maxMinutes - 1) * time.Minute)
	if own := started.Truncate(time.Minute); own.After(first) {
		first = own
	}
	all := []v1alpha1.Minute{}
	for start := first; !start.After(last); start = start.Add(time.Minute) {
		m := h.minutes[slot(start)]
		if !m.Start.Equal(start) {
			m = v1alpha1.Minute{Start: start}
		}
		m.Start = m.Start.UTC()
		all = append(all, m)
	}
	return all
}

// History returns what the proxy did in the last minutes.
func (o *Observer) History() *v1alpha1.History {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.config.Clock.Now()
	return &v1alpha1.History{TypeMeta: v1alpha1.Meta(v1alpha1.KindHistory), Time: now, Items: o.history.list(o.config.Started, now)}
}
