package check

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// bird is a Canary of IPv4 with a fake network.
type bird struct {
	*testing.T
	*Canary
	events  []proxy.Event
	broken  map[string]bool
	wrong   map[string][]string // by group
	counted map[string]int      // checks
	// errs are the results of the next connections, then of all others; unrouted is that of the route.
	errs     []error
	unrouted error
	ended    bool
	// traced counts the traces, cause and err are their results. spent is what a check costs.
	traced int
	cause  string
	err    error
	spent  time.Duration
}

func newBird(t *testing.T) *bird {
	t.Helper()
	b := &bird{T: t, broken: map[string]bool{}, wrong: map[string][]string{}, counted: map[string]int{}}
	b.Canary = NewCanary(CanaryConfig{
		Families: []cluster.Family{cluster.IPv4}, Node: "n1", Recorder: b, Broken: func(check string, broken bool) { b.broken[check] = broken },
		Caller: b, Unrouted: func(netip.AddrPort) error { return b.unrouted },
		Check: func(_ context.Context, group string) []string { b.counted[group]++; return b.wrong[group] },
		Measure: func(ctx context.Context) (context.Context, func() time.Duration) {
			return ctx, func() time.Duration { return b.spent }
		},
		Causes: func(_ context.Context, to, endpoints []netip.AddrPort, connect func()) ([]string, error) {
			if fmt.Sprint(to, endpoints) != "[10.96.0.0:10256] [127.0.0.1:4000]" {
				t.Errorf("traced are connections to %s, with endpoints %s", to, endpoints)
			}
			b.traced++
			connect()
			return []string{b.cause}, b.err
		},
	})
	return b
}

func (b *bird) Event(e proxy.Event) { b.events = append(b.events, e) }

func (b *bird) Close() { b.ended = true }

// Call is part of [Caller].
func (b *bird) Call(to []netip.AddrPort, _ time.Duration) []error {
	errs := make([]error, len(to))
	for i := range to {
		errs[i] = b.errs[0]
	}
	if len(b.errs) > 1 {
		b.errs = b.errs[1:]
	}
	return errs
}

// begun returns a bird whose route is in force; the next connections have these results.
func begun(t *testing.T, errs ...error) *bird {
	t.Helper()
	b := newBird(t)
	b.errs = errs
	route := &plan.Route{Frontend: plan.Frontend{Addr: netip.MustParseAddr("10.96.0.0"), Port: 10256, Protocol: cluster.TCP},
		Pool: &plan.Pool{Endpoints: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:4000")}}}
	b.Synced(&proxy.Sync{Plan: &plan.Plan{Canary: []*plan.Route{route}}, Results: []backend.Result{{Family: cluster.IPv4}}})
	return b
}

// want tries the rules once.
func (b *bird) want(name string, want map[string]string) {
	b.Helper()
	found, tried := b.try(b.Context())
	maps.DeleteFunc(found, func(_, text string) bool { return text == "" })
	if diff := cmp.Diff(want, found); diff != "" || !tried {
		b.Errorf("%s: tried %t, found (-want +got):\n%s", name, tried, diff)
	}
}

var (
	works = map[string]string{}
	fails = func(text string) map[string]string {
		return map[string]string{"IPv4": "IPv4 connections through kube-proxy's rules fail (10.96.0.0:10256: " + text}
	}
)

// TestCanaryConnections has connections that fail once, twice, and for long.
func TestCanaryConnections(t *testing.T) {
	b := begun(t, nil, syscall.ETIMEDOUT, nil)
	for _, name := range []string{"a connection", "one that is slow", "another one"} {
		b.want(name, works)
	}
	if b.traced != 1 {
		t.Errorf("%d traces, want one: of the slow connection", b.traced)
	}
	b.errs, b.cause, b.wrong[Tracking] = []error{syscall.ETIMEDOUT}, "dropped by a chain", []string{"the table is full"}
	b.wrong[Rules] = []string{"there are no rules"}
	for range 3 {
		b.want("no answer", fails("no answer): dropped by a chain; the table is full; there are no rules"))
	}
	if b.traced != 2 {
		t.Errorf("%d traces, want another one only: the cause is known", b.traced)
	}
	b.errs, b.cause, b.wrong = []error{syscall.ECONNREFUSED}, "", nil
	b.want("another error", fails("connection refused): no packet of it was seen"))
	b.Canary.traced[cluster.IPv4].at = time.Now().Add(-traceAgain)
	b.err = errors.New("another trace is running")
	b.want("after a while", fails("connection refused): its packets could not be traced: another trace is running"))
	if b.traced != 4 {
		t.Errorf("%d traces, want one of another error, and one later", b.traced)
	}
	b.errs = []error{nil}
	b.want("healed", works)
}

// TestCanaryInForce tries what the rules in force have.
func TestCanaryInForce(t *testing.T) {
	if found, tried := newBird(t).try(t.Context()); tried {
		t.Errorf("before the first sync: %v", found)
	}
	b := begun(t, syscall.ECONNREFUSED)
	b.cause = "why"
	b.Synced(&proxy.Sync{Plan: &plan.Plan{}, Results: []backend.Result{{Family: cluster.IPv4, Err: errors.New("busy")}}})
	b.want("a sync failed", fails("connection refused): why"))
	b.Synced(&proxy.Sync{Plan: &plan.Plan{}, Results: []backend.Result{{Family: cluster.IPv4}}})
	b.want("no ServiceCIDR", works)
	b = begun(t, syscall.ENETUNREACH)
	b.unrouted = syscall.ENETUNREACH
	b.want("no route", works)
	if b.traced != 0 || !b.untried[cluster.IPv4].Ended() {
		t.Errorf("without a route: %d traces; or it was not logged", b.traced)
	}
}

// TestCanaryChecks reports what checks find, the more rarely the more they cost.
func TestCanaryChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := begun(t, nil)
		b.spent = 5 * time.Millisecond
		b.wrong[Settings], b.wrong[Firewall] = []string{"no IPv4", "no IPv6"}, []string{"a chain drops everything"}
		want := map[string]string{Settings: "no IPv4; no IPv6", Firewall: "a chain drops everything"}
		b.want("both", want)
		delete(b.wrong, Firewall)
		time.Sleep(restShare*b.spent - 1)
		b.want("before they are due", want)
		time.Sleep(time.Nanosecond)
		delete(want, Firewall)
		b.spent = time.Minute
		b.want("when they are due", want)
		b.wrong[Settings], b.spent = nil, 0
		time.Sleep(longestRest)
		b.want("after the longest rest", works)
		b.want("at once again", works)
		time.Sleep(2 * period)
		b.want("after the shortest rest", works)
		if diff := cmp.Diff(map[string]int{Settings: 4, Firewall: 4}, b.counted); diff != "" {
			t.Errorf("checks (-want +got):\n%s", diff)
		}
	})
}

// TestCanaryReport reports what is broken once, and its end.
func TestCanaryReport(t *testing.T) {
	b := newBird(t)
	for _, found := range []map[string]string{{}, {Settings: "no IPv4"}, {Settings: "no IPv4"}, {Settings: "no IPv6"}, {Settings: "no IPv6", "IPv4": "refused"}} {
		b.report(t.Context(), found)
	}
	if diff := cmp.Diff([]string{"refused", "no IPv6"}, b.Problems()); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]bool{"IPv4": true, Settings: true, Firewall: false}, b.broken); diff != "" {
		t.Errorf("the metric (-want +got):\n%s", diff)
	}
	b.report(t.Context(), map[string]string{"IPv4": "refused"})
	var events []string
	for _, e := range b.events {
		events = append(events, fmt.Sprint(e.Kind, " ", e.Name, " ", e.Warning, " ", e.Reason, ": ", e.Message))
	}
	want := []string{"Node n1 true DataplaneBroken: no IPv4", "Node n1 true DataplaneBroken: refused", "Node n1 false DataplaneWorks: The check settings succeeds again"}
	if diff := cmp.Diff(want, events); diff != "" {
		t.Errorf("Events (-want +got):\n%s", diff)
	}
	if none := (*Canary)(nil); none.Problems() != nil {
		t.Error("there is no canary, but problems")
	}
}

// TestCanaryRun tries once a second, until its end.
func TestCanaryRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := begun(t, nil)
		b.wrong[Settings] = []string{"no IPv4"}
		ctx, cancel := context.WithTimeout(t.Context(), 10*period+period/2)
		defer cancel()
		if err := b.Canary.Run(ctx); err != nil || b.counted[Settings] != 5 || !b.ended {
			t.Errorf("%v; %d times; closed %t", err, b.counted[Settings], b.ended)
		}
		if diff := cmp.Diff([]string{"no IPv4"}, b.Problems()); diff != "" {
			t.Errorf("problems (-want +got):\n%s", diff)
		}
	})
}
