package proxy

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

var errBad = errors.New("not liked")

// refusing is a Backend that refuses plans with certain routes, as a whole.
type refusing struct {
	backend.Backend
	// bad routes are refused; too many, if most is not 0; and anything if all is set.
	bad  func(*plan.Route) bool
	most int
	all  bool
	// fails is another error.
	fails error
	held  *plan.Plan
	known bool
	syncs int
}

func (r *refusing) Sync(_ context.Context, p *plan.Plan, _ ...cluster.Family) []backend.Result {
	r.syncs++
	result := backend.Result{Family: cluster.IPv4, Read: !r.known}
	refused, written := r.all || r.most > 0 && p.Frontends.Len() > r.most, map[plan.Port]bool{}
	for frontend, route := range p.Frontends.All() {
		if before, _ := r.held.Frontends.Get(frontend); before != route {
			refused, written[route.Of()] = refused || r.bad(route), true
		}
	}
	switch r.known = r.fails == nil && !refused; {
	case r.fails != nil:
		result.Err = r.fails
	case refused:
		e := &backend.RefusedError{Cause: errBad}
		for port := range written {
			e.Ports = append(e.Ports, port)
		}
		result.Err = e
	default:
		r.held = p
	}
	return []backend.Result{result}
}

// newRefusing refuses the routes of some Services of a clusters.Sized.
func newRefusing(numbers ...int) *refusing {
	return &refusing{held: &plan.Plan{}, bad: func(route *plan.Route) bool {
		return slices.ContainsFunc(numbers, func(n int) bool { return route.Service == clusters.NameAt(n) })
	}}
}

// refusedNames returns the names of the quarantined Services.
func refusedNames(r backend.Result) (names []string) {
	for _, refused := range r.Refused {
		names = append(names, refused.Service.Name)
	}
	return names
}

// TestHalving has some of many ports refused: they are found, and all others are programmed, in a number of attempts that grows with
// the logarithm of the ports.
func TestHalving(t *testing.T) {
	for _, test := range []struct {
		n   int
		bad []int
	}{
		{1, []int{0}}, {2, []int{1}}, {2, []int{0, 1}}, {3, []int{2}}, {100, []int{0}}, {100, []int{99}}, {100, []int{50, 51}},
		{1000, []int{123, 700, 701}}, {3000, []int{1234, 2000}},
	} {
		t.Run(fmt.Sprint(test.n, test.bad), func(t *testing.T) {
			inner := newRefusing(test.bad...)
			c := clusters.NewSized(test.n, 1)
			result := NewQuarantine(inner).Sync(t.Context(), c.Plan())[0]
			if result.Err != nil || len(result.Refused) != len(test.bad) || inner.held.Frontends.Len() != test.n-len(test.bad) || result.InForce != inner.held {
				t.Fatalf("quarantined %v, %d programmed, error %v", refusedNames(result), inner.held.Frontends.Len(), result.Err)
			}
			for _, refused := range result.Refused {
				if !inner.bad(&plan.Route{Service: refused.Service}) || !errors.Is(refused.Cause, errBad) {
					t.Errorf("quarantined %s, because %v", refused.Service, refused.Cause)
				}
			}
			if most := 3 + len(test.bad)*(bits.Len(uint(test.n))+2); inner.syncs > most || result.Failed >= inner.syncs {
				t.Errorf("%d attempts, %d failed; want at most %d", inner.syncs, result.Failed, most)
			}
		})
	}
}

// TestEarlierRoutes has the change of a Service refused while others change: its earlier routes stay, until they are refused as well.
func TestEarlierRoutes(t *testing.T) {
	inner, c := newRefusing(), clusters.NewSized(20, 1)
	b := NewQuarantine(inner)
	first := c.Plan()
	b.Sync(t.Context(), first)
	inner.bad = newRefusing(7).bad
	for number := range 15 {
		c.Set(number, 2)
	}
	result := b.Sync(t.Context(), c.Plan())[0]
	if want := []string{clusters.NameAt(7).Name}; !slices.Equal(refusedNames(result), want) || !result.Refused[0].Kept || result.Err != nil {
		t.Fatalf("quarantined %v, error %v; want %v", result.Refused, result.Err, want)
	}
	port := plan.Port{Service: clusters.NameAt(7), Protocol: cluster.TCP, Family: cluster.IPv4}
	if earlier := inner.held.RoutesOf(port); inner.held.Frontends.Len() != 20 || len(earlier) > 0 {
		t.Errorf("%d frontends, of the port's new routes %v", inner.held.Frontends.Len(), earlier)
	}
	for _, route := range first.RoutesOf(port) {
		if held, _ := inner.held.Frontends.Get(route.Frontend); held != route {
			t.Error("an earlier route is not in force")
		}
	}
	inner.held = &plan.Plan{} // everything is written again
	if result = b.Sync(t.Context(), c.Plan())[0]; result.Err != nil || len(result.Refused) != 1 || result.Refused[0].Kept || inner.held.Frontends.Len() != 19 {
		t.Errorf("quarantined %v, error %v, %d frontends", result.Refused, result.Err, inner.held.Frontends.Len())
	}
}

// TestNobodyToBlame has everything refused or failing: no port is quarantined, and the attempts are few.
func TestNobodyToBlame(t *testing.T) {
	errOther := errors.New("no memory")
	for _, inner := range []*refusing{{all: true}, {fails: errOther}} {
		inner.held, inner.bad, inner.known = &plan.Plan{}, newRefusing().bad, true
		result := NewQuarantine(inner).Sync(t.Context(), clusters.NewSized(100, 1).Plan())[0]
		if result.Err == nil || len(result.Refused) > 0 || inner.syncs > 3+bits.Len(100) || inner.all != errors.Is(result.Err, errBad) {
			t.Errorf("quarantined %v after %d attempts, error %v", refusedNames(result), inner.syncs, result.Err)
		}
	}
}

// TestLimit has more ports refused than one Sync looks for: it fails, and the next ones find the others.
func TestLimit(t *testing.T) {
	inner := newRefusing()
	inner.most = 900
	b, p := NewQuarantine(inner), clusters.NewSized(1000, 1).Plan()
	result, syncs := b.Sync(t.Context(), p)[0], 1
	if result.Err == nil || inner.syncs > maxTries+1 || inner.held.Frontends.Len() == 0 {
		t.Fatalf("%d attempts, %d programmed, error %v", inner.syncs, inner.held.Frontends.Len(), result.Err)
	}
	for ; result.Err != nil && syncs < 100; syncs++ {
		result = b.Sync(t.Context(), p)[0]
	}
	if len(result.Refused) != 100 || inner.held.Frontends.Len() != 900 {
		t.Errorf("after %d syncs: %d quarantined, %d programmed, error %v", syncs, len(result.Refused), inner.held.Frontends.Len(), result.Err)
	}
}

// TestMissingModule has all ports with session affinity refused: all others are programmed by the first Sync, and a few find
// the ports.
func TestMissingModule(t *testing.T) {
	const n, every = 1000, 10
	inner := newRefusing()
	inner.bad = func(route *plan.Route) bool { return route.Affinity != nil }
	c := clusters.NewSized(n, 1)
	for number := 0; number < n; number += every {
		s, _ := c.Services.Get(clusters.NameAt(number))
		sticky := *s
		sticky.Affinity = time.Hour
		c.Services.Set(sticky.Name, &sticky)
	}
	b, p := NewQuarantine(inner), c.Plan()
	result := b.Sync(t.Context(), p)[0]
	if inner.held.Frontends.Len() != n-n/every || len(result.Refused) < 20 {
		t.Errorf("%d are programmed, %d quarantined, error %v", inner.held.Frontends.Len(), len(result.Refused), result.Err)
	}
	for syncs := 1; result.Err != nil; syncs++ {
		if result = b.Sync(t.Context(), p)[0]; syncs == 5 {
			t.Fatal(result.Err)
		}
	}
	if len(result.Refused) != n/every || inner.held.Frontends.Len() != n-n/every {
		t.Errorf("%d are programmed, %d quarantined", inner.held.Frontends.Len(), len(result.Refused))
	}
}

// TestRetries checks that a quarantined port is retried without a change, at increasing intervals, and at once when it changes, but at
// most once a second.
func TestRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, c := newRefusing(7), clusters.NewSized(20, 1)
		b := NewQuarantine(inner)
		program := func() backend.Result { return b.Sync(t.Context(), c.Plan())[0] }
		for _, wait := range []time.Duration{1, 2, 4, 8, 16} {
			result := program()
			if result.Failed == 0 || result.Again != wait*time.Second {
				t.Fatalf("%d failed attempts, and a retry in %s; want some, and %d s", result.Failed, result.Again, wait)
			}
			time.Sleep(result.Again - time.Millisecond)
			if result = program(); result.Failed > 0 || result.Again != time.Millisecond {
				t.Fatalf("too early: %d failed attempts, and a retry in %s", result.Failed, result.Again)
			}
			time.Sleep(time.Millisecond)
		}
		program()
		time.Sleep(100 * time.Millisecond)
		tries := 0
		for range 50 { // 5 s
			c.Set(7, -1)
			tries += program().Failed
			c.Set(7, 1)
			tries += program().Failed
			time.Sleep(100 * time.Millisecond)
		}
		if tries > 2*6 {
			t.Errorf("a refused port that changes all the time was tried %d times in 5 s", tries)
		}
		inner.bad = newRefusing().bad
		time.Sleep(time.Second)
		c.Set(7, -1)
		if result := program(); len(result.Refused) > 0 || result.Again != 0 {
			t.Errorf("once accepted: quarantined %v, and a retry in %s", refusedNames(result), result.Again)
		}
	})
}
