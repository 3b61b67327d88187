package backend

import (
	"context"
	"errors"
	"iter"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// slowCounter counts its readings. Each takes a while.
type slowCounter struct {
	mu       sync.Mutex
	readings int
	reading  bool
	takes    time.Duration
	err      error
}

func (c *slowCounter) Connections(_ context.Context, _ cluster.Family, routes iter.Seq[*plan.Route], _ bool) (*Connections, error) {
	c.mu.Lock()
	if c.reading {
		panic("two readings at a time")
	}
	c.readings++
	c.reading = true
	n := c.readings
	c.mu.Unlock()
	time.Sleep(c.takes)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading = false
	counts := NewConnections()
	for route := range routes {
		counts.Frontends[route.Frontend] = uint64(n)
	}
	return counts, c.err
}

func (*slowCounter) Counts(cluster.Family) Counting { return CountServices }

func (c *slowCounter) total() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.readings
}

func sharedRoutes() (a, b, replaced *plan.Route) {
	at := func(port uint16) plan.Frontend {
		return plan.Frontend{Addr: netip.MustParseAddr("10.96.0.1"), Port: port, Protocol: cluster.TCP}
	}
	return &plan.Route{Frontend: at(80)}, &plan.Route{Frontend: at(81)}, &plan.Route{Frontend: at(80)}
}

// TestSharedCounter lets a user ask while another one reads. Its own reading serves those who wait with it and ask for a part
// of it: not for other routes, the same address with another decision, endpoints, or another family.
func TestSharedCounter(t *testing.T) {
	a, b, replaced := sharedRoutes()
	for _, test := range []struct {
		name      string
		family    cluster.Family
		routes    []*plan.Route
		endpoints bool
		readings  int
	}{
		{"the same", cluster.IPv4, []*plan.Route{a, b}, false, 2},
		{"a part", cluster.IPv4, []*plan.Route{b}, false, 2},
		{"endpoints", cluster.IPv4, []*plan.Route{a, b}, true, 3},
		{"another decision", cluster.IPv4, []*plan.Route{replaced}, false, 3},
		{"another family", cluster.IPv6, []*plan.Route{a}, false, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				kernel := &slowCounter{takes: 100 * time.Millisecond}
				s := NewSharedCounter(kernel)
				var users sync.WaitGroup
				ask := func(family cluster.Family, endpoints bool, routes ...*plan.Route) {
					asked := time.Now()
					users.Go(func() {
						counts, err := s.Connections(t.Context(), family, slices.Values(routes), endpoints)
						if err != nil || counts.At.Before(asked) || counts.Frontends[routes[0].Frontend] == 0 {
							t.Errorf("%v: %+v, %v", routes, counts, err)
						}
					})
					time.Sleep(time.Millisecond) // the order of turns
				}
				ask(cluster.IPv4, false, a, b)
				ask(cluster.IPv4, false, a, b)
				ask(test.family, test.endpoints, test.routes...)
				users.Wait()
				if kernel.total() != test.readings {
					t.Errorf("%d readings, want %d", kernel.total(), test.readings)
				}
				if last := <-s.last; len(last) > 0 {
					t.Errorf("%d readings are still in memory", len(last))
				}
			})
		})
	}
}

// TestSharedCounterTurns asks again and again: each gets a reading of its own, because a client may compare the counters
// before and after what it does. A user does not wait longer than it wants to.
func TestSharedCounterTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kernel := &slowCounter{takes: 100 * time.Millisecond}
		s := NewSharedCounter(kernel)
		a, _, _ := sharedRoutes()
		for n := range uint64(3) {
			if counts, err := s.Connections(t.Context(), cluster.IPv4, slices.Values([]*plan.Route{a}), true); err != nil || counts.Frontends[a.Frontend] != n+1 {
				t.Errorf("%+v, %v", counts, err)
			}
		}
		var user sync.WaitGroup
		user.Go(func() {
			if _, err := s.Connections(t.Context(), cluster.IPv4, slices.Values([]*plan.Route{a}), true); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		impatient, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err := s.Connections(impatient, cluster.IPv4, slices.Values([]*plan.Route{a}), true); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waiting for another reader: %v", err)
		}
		user.Wait()
		if s.Counts(cluster.IPv4) != CountServices {
			t.Error("it does not count what its counter counts")
		}
		kernel.err = errors.New("no rights")
		if _, err := s.Connections(t.Context(), cluster.IPv4, slices.Values([]*plan.Route{a}), true); !errors.Is(err, kernel.err) {
			t.Errorf("got %v, want %v", err, kernel.err)
		}
	})
}
