package rivals

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// ending is a mode whose rules another program writes again.
type ending struct {
	present  atomic.Bool
	removals atomic.Int32
}

func (e *ending) Present(context.Context) (bool, error) { return e.present.Load(), nil }

func (e *ending) Remove(context.Context) error {
	e.present.Store(false)
	e.removals.Add(1)
	return nil
}

// TestWatcherWhileEnding watches while the rules of another mode are removed: a proxy that is about to end and writes them once more
// is not reported, one that writes them later is.
func TestWatcherWhileEnding(t *testing.T) {
	for after, want := range map[time.Duration]bool{7 * time.Second: false, 46 * time.Second: true, 2 * time.Minute: true} {
		t.Run(after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				e := &ending{}
				e.present.Store(true)
				var seen atomic.Bool
				w := New(Config{Mode: "nftables", Others: []Mode{{"theirs", e}}, Seen: func(string, time.Time) { seen.Store(true) },
					Processes: func() ([]int, error) { return nil, nil }})
				go w.Remove(ctx)
				go w.Run(ctx) //nolint:errcheck // it returns nil
				time.AfterFunc(after, func() { e.present.Store(true) })
				time.Sleep(3 * time.Minute)
				if seen.Load() != want {
					t.Errorf("reported: %v, want %v", seen.Load(), want)
				}
			})
		})
	}
}

// TestRemoveWhileEnding removes the rules of another mode again if they come back shortly afterwards, as from a proxy that is about to
// end, but not those that come back later, and does nothing if none come back.
func TestRemoveWhileEnding(t *testing.T) {
	for name, test := range map[string]struct {
		back     []time.Duration // after the first removal
		removals int32
		present  bool
	}{
		"never":      {nil, 1, false},
		"soon":       {[]time.Duration{3 * time.Second}, 2, false},
		"twice":      {[]time.Duration{3 * time.Second, 20 * time.Second}, 3, false},
		"much later": {[]time.Duration{2 * time.Minute}, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				e := &ending{}
				e.present.Store(true)
				for _, after := range test.back {
					time.AfterFunc(after, func() { e.present.Store(true) })
				}
				go New(Config{Others: []Mode{{"theirs", e}}}).Remove(ctx)
				time.Sleep(3 * time.Minute)
				if e.removals.Load() != test.removals || e.present.Load() != test.present {
					t.Errorf("%d removals, present is %v; want %d, %v", e.removals.Load(), e.present.Load(), test.removals, test.present)
				}
			})
		})
	}
}
