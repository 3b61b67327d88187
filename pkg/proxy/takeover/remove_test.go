package takeover

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// ending is a mode whose rules another program writes again.
type ending struct {
	present  atomic.Bool
	removals atomic.Int32
}

func (e *ending) Present(context.Context, ...cluster.Family) (bool, error) {
	return e.present.Load(), nil
}

func (e *ending) Remove(context.Context, ...cluster.Family) error {
	e.present.Store(false)
	e.removals.Add(1)
	return nil
}

// TestObserverWhileEnding watches while the rules of another mode are removed: a proxy that is about to end and writes them once more
// is not reported, one that writes them later is.
func TestObserverWhileEnding(t *testing.T) {
	for after, want := range map[time.Duration]bool{7 * time.Second: false, 46 * time.Second: true, 2 * time.Minute: true} {
		t.Run(after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				e := &ending{}
				e.present.Store(true)
				var seen atomic.Bool
				w := New(Config{Mode: "nftables", Families: []cluster.Family{cluster.IPv4}, Others: []Mode{{Name: "theirs", Remover: e}}, Seen: func(string, time.Time) { seen.Store(true) },
					Processes: func() ([]int, error) { return nil, nil }})
				w.Synced(inForce(cluster.IPv4))
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
				w := New(Config{Families: []cluster.Family{cluster.IPv4}, Others: []Mode{{Name: "theirs", Remover: e}}, Seen: func(string, time.Time) {},
					Processes: func() ([]int, error) { return nil, nil }})
				w.Synced(inForce(cluster.IPv4))
				go w.Run(ctx) //nolint:errcheck // it returns nil
				time.Sleep(3 * time.Minute)
				if e.removals.Load() != test.removals || e.present.Load() != test.present {
					t.Errorf("%d removals, present is %v; want %d, %v", e.removals.Load(), e.present.Load(), test.removals, test.present)
				}
			})
		})
	}
}

// calls is a mode that records the families for which it is called.
type calls struct {
	mu              sync.Mutex
	removed, looked [][]cluster.Family
}

func (c *calls) Present(_ context.Context, families ...cluster.Family) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looked = append(c.looked, families)
	return false, nil
}

func (c *calls) Remove(_ context.Context, families ...cluster.Family) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removed = append(c.removed, families)
	return nil
}

// TestRemoveWhileFailing checks that a family that fails keeps the rules of the other mode, and is not reported for them, until its own
// are in force.
func TestRemoveWhileFailing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := &calls{}
		w := New(Config{Families: []cluster.Family{cluster.IPv4, cluster.IPv6}, Others: []Mode{{Name: "theirs", Remover: c}}})
		go w.Run(ctx) //nolint:errcheck // it returns nil
		want := func(when string, removals ...[]cluster.Family) {
			t.Helper()
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			c.mu.Lock()
			defer c.mu.Unlock()
			if !slices.EqualFunc(c.removed, removals, slices.Equal) {
				t.Errorf("%s: removed %v, want %v", when, c.removed, removals)
			}
			var last []cluster.Family
			if len(removals) > 0 {
				last = removals[len(removals)-1]
			}
			if n := len(c.looked); (n > 0) != (len(removals) > 0) || n > 0 && !slices.Equal(c.looked[n-1], last) {
				t.Errorf("%s: looked for rules of %v, want %v", when, c.looked, last)
			}
		}
		ipv4 := []cluster.Family{cluster.IPv4}
		w.Synced(inForce())
		want("while both fail")
		for range 3 {
			w.Synced(inForce(ipv4...))
		}
		want("while IPv6 fails", ipv4)
		for range 3 {
			w.Synced(inForce(cluster.IPv6, cluster.IPv4))
		}
		want("when both are in force", ipv4, nil)
	})
}

// TestRemoveAtOnce checks that the rules of the other mode are removed in a second family as soon as those of this proxy are in force
// there, and not only when they can no longer come back in the first one.
func TestRemoveAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := &calls{}
		w := New(Config{Families: []cluster.Family{cluster.IPv4, cluster.IPv6}, Others: []Mode{{Name: "theirs", Remover: c}}})
		go w.Run(ctx) //nolint:errcheck // it returns nil
		for _, removals := range [][][]cluster.Family{{{cluster.IPv6}}, {{cluster.IPv6}, nil}} {
			w.Synced(inForce([]cluster.Family{cluster.IPv6, cluster.IPv4}[:len(removals)]...))
			synctest.Wait()
			c.mu.Lock()
			if !slices.EqualFunc(c.removed, removals, slices.Equal) {
				t.Errorf("removed %v, want %v", c.removed, removals)
			}
			c.mu.Unlock()
			time.Sleep(time.Second)
		}
	})
}

// draining is a mode that connections use until a time.
type draining struct {
	ending
	until   time.Time
	more    atomic.Bool // than it has left
	refused atomic.Bool // is the removal of what is used
	blind   atomic.Bool // fails to look, before it can find more than it has left
}

func (d *draining) Remove(ctx context.Context, families ...cluster.Family) error {
	if d.refused.Load() {
		return errors.New("refused")
	}
	return d.ending.Remove(ctx, families...)
}

func (d *draining) Drain(_ context.Context, last backend.Left, _ ...cluster.Family) (backend.Left, error) {
	d.removals.Add(1)
	if d.blind.Load() {
		return last, errors.New("cannot look")
	}
	if d.more.Load() && last != nil {
		return nil, backend.ErrRival
	}
	left := time.Now().Before(d.until)
	d.present.Store(left)
	if !left {
		return nil, nil
	}
	return backend.Left{"one": true}, nil
}

// observe runs an Observer of modes, of which d drains, until the test ends.
func (d *draining) observe(t *testing.T, drain bool, seen func(mode string, at time.Time), others ...Mode) {
	d.present.Store(true)
	w := New(Config{Families: []cluster.Family{cluster.IPv4}, Others: append([]Mode{{Name: "drains", Remover: d, Drain: d.Drain}}, others...), Drain: drain,
		Seen: seen, Processes: func() ([]int, error) { return nil, nil }})
	w.Synced(inForce(cluster.IPv4))
	go w.Run(t.Context()) //nolint:errcheck // it returns nil
}

// TestDrainRival checks that a drain ends, and another proxy is reported, when there is more than the drain has left, and that without
// Drain all is removed at once.
func TestDrainRival(t *testing.T) {
	for _, drain := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			d := &draining{until: time.Now().Add(time.Hour)}
			var seen atomic.Int32
			d.observe(t, drain, func(string, time.Time) { seen.Add(1) })
			time.Sleep(20 * time.Minute)
			if d.present.Load() != drain || seen.Load() != 0 {
				t.Errorf("Drain %t: present is %t, seen %d times", drain, d.present.Load(), seen.Load())
			}
			if !drain {
				return
			}
			d.more.Store(true)
			before := d.removals.Load()
			time.Sleep(20 * time.Minute)
			if d.removals.Load() != before+1 || seen.Load() == 0 || !d.present.Load() {
				t.Errorf("%d attempts more, seen %d times, present is %t", d.removals.Load()-before, seen.Load(), d.present.Load())
			}
		})
	}
}

// TestDrain checks that what connections use is removed when they have ended, however late that is, and only then: rules of another
// mode that come back meanwhile stay, and both are reported as another proxy's only if they come back.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, e := &draining{until: time.Now().Add(time.Hour)}, &ending{}
		var mu sync.Mutex
		seen := map[string]int{}
		d.observe(t, true, func(mode string, _ time.Time) {
			mu.Lock()
			defer mu.Unlock()
			seen[mode]++
		}, Mode{Name: "ends", Remover: e})
		time.Sleep(50 * time.Minute)
		e.present.Store(true)
		synctest.Wait()
		if d.removals.Load() < 50 || !d.present.Load() {
			t.Errorf("%d attempts in 50 minutes, present is %t", d.removals.Load(), d.present.Load())
		}
		time.Sleep(15 * time.Minute)
		attempts := d.removals.Load()
		time.Sleep(time.Hour)
		mu.Lock()
		defer mu.Unlock()
		if d.present.Load() || d.removals.Load() != attempts || !e.present.Load() || seen["drains"] != 0 || seen["ends"] == 0 {
			t.Errorf("present are %t and %t, %d attempts after %d, seen %v", d.present.Load(), e.present.Load(), d.removals.Load(), attempts, seen)
		}
	})
}

// TestDrainLimit checks that what connections use for a day is removed, also if that fails at first, and that another proxy's rules are not.
func TestDrainLimit(t *testing.T) {
	for _, rival := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d := &draining{until: time.Now().Add(100 * time.Hour)}
			d.observe(t, true, func(string, time.Time) {})
			time.Sleep(drainLimit - time.Second)
			if !d.present.Load() {
				t.Error("removed before the limit")
			}
			d.more.Store(rival)
			d.refused.Store(!rival)
			time.Sleep(5 * drainPause)
			if !d.present.Load() {
				t.Errorf("rival %t: removed", rival)
			}
			d.refused.Store(false)
			time.Sleep(2 * drainPause)
			if attempts := d.removals.Load(); d.present.Load() != rival {
				t.Errorf("rival %t: present is %t after %d attempts", rival, d.present.Load(), attempts)
			}
			attempts := d.removals.Load()
			time.Sleep(time.Hour)
			if d.removals.Load() != attempts {
				t.Errorf("rival %t: %d attempts more", rival, d.removals.Load()-attempts)
			}
		})
	}
}

// TestDrainBlind checks that nothing is removed after the limit while Drain fails: it may not have looked for another proxy.
func TestDrainBlind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &draining{until: time.Now().Add(100 * time.Hour)}
		d.observe(t, true, func(string, time.Time) {})
		time.Sleep(drainLimit - time.Second)
		d.blind.Store(true)
		time.Sleep(5 * drainPause)
		if !d.present.Load() {
			t.Error("removed without a look for another proxy")
		}
		d.blind.Store(false)
		time.Sleep(2 * drainPause)
		if d.present.Load() {
			t.Error("not removed when Drain works again")
		}
	})
}
