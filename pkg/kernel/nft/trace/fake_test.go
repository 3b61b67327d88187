package trace

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func to(addr string, protocol byte, port uint16) Destination {
	return Destination{netip.MustParseAddr(addr), protocol, port}
}

// TestFilter checks which filters are refused.
func TestFilter(t *testing.T) {
	for _, test := range []struct {
		filter Filter
		err    string
	}{
		{Filter{To: []Destination{to("10.96.0.1", 6, 80), to("fd00::1", 0, 0), to("0.0.0.0", 17, 53)}, PerSecond: 1}, ""},
		{Filter{From: netip.MustParsePrefix("10.0.0.0/8"), PerSecond: 1}, ""},
		{Filter{PerSecond: 1}, "neither a source nor a destination"},
		{Filter{To: []Destination{to("10.96.0.1", 6, 80)}}, "must not be 0"},
		{Filter{To: slices.Repeat([]Destination{to("10.96.0.1", 6, 80)}, MaxDestinations+1), PerSecond: 1}, "129 addresses and ports are more than 128"},
		{Filter{To: []Destination{to("::ffff:10.96.0.1", 6, 80)}, PerSecond: 1}, "is not an IPv4 or IPv6 address"},
		{Filter{To: []Destination{{}}, PerSecond: 1}, "is not an IPv4 or IPv6 address"},
		{Filter{To: []Destination{to("10.96.0.1", 6, 0)}, PerSecond: 1}, "both or none must be 0"},
		{Filter{From: netip.MustParsePrefix("fd00::/8"), To: []Destination{to("10.96.0.1", 6, 80)}, PerSecond: 1}, "different IP families"},
	} {
		var kernel Fake
		tracer, err := kernel.Open(t.Context(), test.filter)
		if test.err == "" && (err != nil || tracer.Close() != nil) || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
			t.Errorf("%+v: %v, want %q", test.filter, err, test.err)
		}
	}
}

// TestFake checks that a Fake reports selected packets only, refuses events that the kernel does not report, and fails on demand.
func TestFake(t *testing.T) {
	var kernel Fake
	packet := func(destination string, more ...Event) []Event {
		return append([]Event{{Packet: 1, Kind: Rule, Table: Table, Chain: Selected, Handle: 2, Verdict: "continue", Headers: &Headers{
			Protocol: 6, Source: netip.MustParseAddrPort("10.244.1.3:4000"), Destination: netip.MustParseAddrPort(destination)}}}, more...)
	}
	if traced, err := kernel.Send(packet("10.96.0.1:80")...); traced || err != nil {
		t.Errorf("without a trace: %v, %v", traced, err)
	}
	kernel.Refuse(ErrOldKernel)
	filter := Filter{To: []Destination{to("10.96.0.1", 6, 80)}, PerSecond: 1}
	if _, err := kernel.Open(t.Context(), filter); !errors.Is(err, ErrOldKernel) {
		t.Errorf("refused: %v", err)
	}
	kernel.Refuse(nil)
	tracer, err := kernel.Open(t.Context(), filter)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kernel.Open(t.Context(), filter); !errors.Is(err, ErrRunning) {
		t.Errorf("a second trace: %v", err)
	}
	for destination, want := range map[string]bool{"10.96.0.1:80": true, "10.96.0.1:81": false, "10.96.0.2:80": false} {
		if traced, err := kernel.Send(packet(destination)...); traced != want || err != nil {
			t.Errorf("%s: %v, %v", destination, traced, err)
		}
	}
	if events, lost, err := tracer.Next(t.Context()); len(events) != 1 || lost || err != nil {
		t.Errorf("%+v, %v, %v", events, lost, err)
	}
	for name, events := range map[string][]Event{
		"none": nil, "no beginning": packet("10.96.0.1:80")[1:], "no handle": packet("10.96.0.1:80", Event{Kind: Rule, Verdict: "accept"}),
		"a jump nowhere":    packet("10.96.0.1:80", Event{Kind: Rule, Handle: 1, Verdict: "jump"}),
		"more after a drop": packet("10.96.0.1:80", Event{Kind: Policy, Verdict: "drop"}, Event{Kind: Policy, Verdict: "accept"}),
	} {
		if _, err := kernel.Send(events...); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if events, _, err := tracer.Next(ended); len(events) != 0 || err != nil {
		t.Errorf("without packets: %+v, %v", events, err)
	}
	broken := errors.New("no memory")
	kernel.Break(broken)
	if _, _, err := tracer.Next(t.Context()); !errors.Is(err, broken) {
		t.Errorf("broken: %v", err)
	}
	if err := errors.Join(tracer.Close(), tracer.Close()); err != nil || kernel.Running() {
		t.Errorf("closed: %v", err)
	}
	if _, _, err := tracer.Next(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
