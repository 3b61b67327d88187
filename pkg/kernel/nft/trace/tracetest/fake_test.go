package tracetest

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft/trace"
)

// TestFake checks that a Fake reports selected packets only, refuses events that the kernel does not report, and fails on demand.
func TestFake(t *testing.T) {
	var kernel Fake
	packet := func(destination string, more ...trace.Event) []trace.Event {
		return append([]trace.Event{{Packet: 1, Kind: trace.Rule, Table: trace.Table, Chain: trace.Selected, Handle: 2, Verdict: "continue", Headers: &trace.Headers{
			Protocol: 6, Source: netip.MustParseAddrPort("10.244.1.3:4000"), Destination: netip.MustParseAddrPort(destination)}}}, more...)
	}
	if traced, err := kernel.Send(packet("10.96.0.1:80")...); traced || err != nil {
		t.Errorf("without a trace: %v, %v", traced, err)
	}
	kernel.Refuse(trace.ErrOldKernel)
	filter := trace.Filter{To: []trace.Destination{{Addr: netip.MustParseAddr("10.96.0.1"), Protocol: 6, Port: 80}}, PerSecond: 1}
	if _, err := kernel.Open(t.Context(), filter); !errors.Is(err, trace.ErrOldKernel) {
		t.Errorf("refused: %v", err)
	}
	kernel.Refuse(nil)
	tracer, err := kernel.Open(t.Context(), filter)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kernel.Open(t.Context(), filter); !errors.Is(err, trace.ErrRunning) {
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
	for name, events := range map[string][]trace.Event{
		"none": nil, "no beginning": packet("10.96.0.1:80")[1:], "no handle": packet("10.96.0.1:80", trace.Event{Kind: trace.Rule, Verdict: "accept"}),
		"a jump nowhere":    packet("10.96.0.1:80", trace.Event{Kind: trace.Rule, Handle: 1, Verdict: "jump"}),
		"more after a drop": packet("10.96.0.1:80", trace.Event{Kind: trace.Policy, Verdict: "drop"}, trace.Event{Kind: trace.Policy, Verdict: "accept"}),
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
	if err := tracer.Close(); err != nil || kernel.Running() {
		t.Errorf("closed: %v", err)
	}
}
