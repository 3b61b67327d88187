package canary

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// bird is a Canary of one family whose route leads to a real address, as if rules had translated it.
type bird struct {
	*testing.T
	*Canary
	events  []proxy.Event
	broken  map[string]bool
	wrong   map[string][]string // by group
	checked map[string]int
	// traced counts the traces. during is called in one, before the connections; cause and err are its result.
	traced int
	during func()
	cause  string
	err    error
}

func newBird(t *testing.T) *bird {
	t.Helper()
	b := &bird{T: t, broken: map[string]bool{}, wrong: map[string][]string{}, checked: map[string]int{}, during: func() {}}
	var err error
	b.Canary, err = New(Config{
		Families: []cluster.Family{cluster.IPv4}, Node: "n1", Recorder: b, Broken: func(check string, broken bool) { b.broken[check] = broken },
		Check: func(_ context.Context, group string) []string { b.checked[group]++; return b.wrong[group] },
		Trace: func(_ context.Context, routes []*plan.Route, connect func()) (map[cluster.Family]string, error) {
			b.traced++
			b.during()
			connect()
			if len(routes) != 1 || b.cause == "" {
				return nil, b.err
			}
			return map[cluster.Family]string{cluster.IPv4: b.cause}, b.err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.listeners.close)
	return b
}

func (b *bird) Event(e proxy.Event) { b.events = append(b.events, e) }

// routed puts a route to an address in force.
func (b *bird) routed(to netip.AddrPort) {
	route := &plan.Route{Frontend: plan.Frontend{Addr: to.Addr(), Port: to.Port(), Protocol: cluster.TCP}}
	b.Synced(&proxy.Sync{Plan: &plan.Plan{Canary: []*plan.Route{route}}, Results: []backend.Result{{Family: cluster.IPv4}}})
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

// closed returns an address where nothing listens.
func closed(t *testing.T) netip.AddrPort {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).AddrPort()
}

// TestConnections tries connections that succeed, and others that fail.
func TestConnections(t *testing.T) {
	b := newBird(t)
	if found, tried := b.try(t.Context()); tried {
		t.Errorf("before the first sync: %v", found)
	}
	b.routed(b.Endpoints()[0])
	b.during = b.listeners.serve
	b.want("slow, but not broken", map[string]string{})
	b.want("as usual", map[string]string{})
	if b.traced != 1 {
		t.Errorf("%d traces, want one: of the slow connection", b.traced)
	}

	to := closed(t)
	b.routed(to)
	b.during, b.cause, b.wrong[Tracking] = func() {}, "a firewall rejects it", []string{"the table is full"}
	why := fmt.Sprintf("IPv4 connections through kube-proxy's rules fail (%s: connection refused): a firewall rejects it; the table is full", to)
	for range 3 {
		b.want("refused", map[string]string{"IPv4": why})
	}
	if b.traced != 2 {
		t.Errorf("%d traces, want another one only: the cause is known", b.traced)
	}
	b.traced = 0
	b.Canary.traced[cluster.IPv4].at = time.Now().Add(-traceAgain)
	b.cause, b.err, b.wrong[Tracking] = "", errors.New("another trace is running"), nil
	b.want("no trace", map[string]string{"IPv4": strings.Replace(why, "a firewall rejects it; the table is full", "its packets could not be traced: another trace is running", 1)})
	b.routed(b.Endpoints()[0])
	b.want("healed", map[string]string{})
	b.routed(to)
	b.err = nil
	b.want("nothing traced", map[string]string{"IPv4": strings.Replace(why, "a firewall rejects it; the table is full", "no packet of it was seen", 1)})
	if b.traced != 2 {
		t.Errorf("%d traces, want two: later, and of what failed again", b.traced)
	}
	b.Synced(&proxy.Sync{Plan: &plan.Plan{}, Results: []backend.Result{{Family: cluster.IPv4, Err: errors.New("busy")}}})
	if b.inForce()[cluster.IPv4] == nil {
		t.Error("a sync that failed has changed what is in force")
	}
	b.Synced(&proxy.Sync{Plan: &plan.Plan{}, Results: []backend.Result{{Family: cluster.IPv4}}})
	b.want("no ServiceCIDR", map[string]string{})
}

// TestForeign lets another program answer.
func TestForeign(t *testing.T) {
	foreign, err := listen([]cluster.Family{cluster.IPv4})
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.close()
	foreign.serve()
	b := newBird(t)
	b.cause = "sent elsewhere"
	to := foreign.all[0].Addr().(*net.TCPAddr).AddrPort()
	b.routed(to)
	b.want("another program", map[string]string{"IPv4": fmt.Sprintf("IPv4 connections through kube-proxy's rules fail (%s: another program answers): sent elsewhere", to)})
}

// TestUntried has an address to which the kernel sends nothing: that is not broken.
func TestUntried(t *testing.T) {
	b := newBird(t)
	b.routed(netip.MustParseAddrPort("[fe80::1]:10256")) // without an interface
	b.want("no route", map[string]string{})
	if b.traced != 0 || !b.untried[cluster.IPv4].Ended() {
		t.Errorf("%d traces; or it was not logged why", b.traced)
	}
}

// TestChecks reports what checks find: kernel settings each time, and the chains less often if that takes long.
func TestChecks(t *testing.T) {
	b := newBird(t)
	b.listeners.serve()
	b.routed(b.Endpoints()[0])
	b.wrong[Settings], b.wrong[Firewall] = []string{"no IPv4", "no IPv6"}, []string{"a chain drops everything"}
	want := map[string]string{Settings: "no IPv4; no IPv6", Firewall: "a chain drops everything"}
	b.want("both", want)
	b.due = time.Now().Add(time.Hour)
	delete(b.wrong, Firewall)
	b.want("before the chains are due", want)
	if b.checked[Settings] != 2 || b.checked[Firewall] != 1 || b.checked[Tracking] != 0 {
		t.Errorf("checked %v", b.checked)
	}
	b.due = time.Time{}
	delete(want, Firewall)
	b.want("when they are due", want)
	if b.due.IsZero() {
		t.Error("the chains are checked without rests")
	}
}

// TestReport reports what is broken once, and its end.
func TestReport(t *testing.T) {
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

// TestRun tries real connections until its end, and then listens no more.
func TestRun(t *testing.T) {
	b := newBird(t)
	b.routed(b.Endpoints()[0])
	b.wrong[Settings] = []string{"broken"}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- b.Canary.Run(ctx) }()
	for len(b.Problems()) == 0 {
		time.Sleep(time.Millisecond)
	}
	if diff := cmp.Diff([]string{"broken"}, b.Problems()); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if conn, err := net.Dial("tcp", b.Endpoints()[0].String()); err == nil {
		conn.Close()
		t.Error("it still listens")
	}
}

// TestLevel has the values of the flag.
func TestLevel(t *testing.T) {
	for text, valid := range map[string]bool{"none": true, "report": true, "healthz": true, "": false, "true": false} {
		var l Level
		if err := l.Set(text); (err == nil) != valid || valid && l.String() != text {
			t.Errorf("%q: %q, %v", text, l, err)
		}
	}
}
