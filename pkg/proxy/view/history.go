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

// at returns the minute of a time, and forgets the one that was maxMinutes ago.
func (h *history) at(t time.Time) *v1alpha1.Minute {
	start := t.UTC().Truncate(time.Minute)
	m := &h.minutes[start.Unix()/60%maxMinutes]
	if !m.Start.Equal(start) {
		*m = v1alpha1.Minute{Start: start}
	}
	return m
}

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
	all := []v1alpha1.Minute{}
	for n := maxMinutes - 1; n >= 0; n-- {
		if minute := now.Truncate(time.Minute).Add(-time.Duration(n) * time.Minute); !minute.Before(started.Truncate(time.Minute)) {
			all = append(all, *h.at(minute))
		}
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
