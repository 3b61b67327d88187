//go:build linux

package netns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestDirect checks that without rules pods on one or two nodes, and the nodes, see
// each other's own addresses.
func TestDirect(t *testing.T) {
	for _, network := range []PodNetwork{Bridged, Routed} {
		lab := Start(t, Options{PodNetwork: network})
		serveAll(t, lab, 8080, 8081)
		to := lab.Node1.Pods[0]
		var probes []Probe
		for _, from := range []*Host{lab.Node1.Pods[1], lab.Node2.Pods[0], lab.Node2.Host} {
			for _, family := range Families() {
				for _, protocol := range Protocols() {
					for _, port := range []uint16{8080, 8081, 8082} {
						probes = append(probes, Probe{From: from, To: netip.AddrPortFrom(to.Addr(family), port), Protocol: protocol})
					}
				}
			}
		}
		for i, got := range SendAll(probes...) {
			p := probes[i]
			if p.To.Port() == 8082 {
				if got.Verdict != Refused {
					t.Errorf("%v without a listener: %v", p, got)
				}
				continue
			}
			if got.Verdict != Answered || got.Endpoint != "pod1a" || got.Reached != p.To || got.Source.Addr() != p.From.Addr(FamilyOf(p.To.Addr())) {
				t.Errorf("%v: %v", p, got)
			}
			if got.Local != got.Source {
				t.Errorf("%v: sent from %v, seen from %v", p, got.Local, got.Source)
			}
		}
	}
}

// TestOutside checks that the client cannot reach pods, and that a missing route is
// not reported as a drop.
func TestOutside(t *testing.T) {
	t.Parallel()
	lab := Start(t, Options{})
	serveAll(t, lab, 8080)
	for _, family := range Families() {
		for _, protocol := range Protocols() {
			p := Probe{From: lab.Client, To: netip.AddrPortFrom(lab.Node1.Pods[0].Addr(family), 8080), Protocol: protocol}
			if got := p.Send(); got.Verdict != Dropped {
				t.Errorf("%v: %v", p, got)
			}
		}
	}
	if err := lab.Client.Unroute(defaults()...); err != nil {
		t.Fatal(err)
	}
	for _, family := range Families() {
		for _, protocol := range Protocols() {
			p := Probe{From: lab.Client, To: netip.AddrPortFrom(lab.Node1.Pods[0].Addr(family), 8080), Protocol: protocol}
			if got := p.Send(); got.Verdict != Unreachable {
				t.Errorf("%v without a route: %v", p, got)
			}
		}
	}
}

func TestSource(t *testing.T) {
	lab := Start(t, Options{})
	server := lab.Node2.Host
	for _, protocol := range Protocols() {
		if _, err := server.Serve(protocol, 80); err != nil {
			t.Fatal(err)
		}
	}
	more := []netip.Prefix{netip.MustParsePrefix("172.18.0.150/24"), netip.MustParsePrefix("fd00:172:18::150/64")}
	for i, family := range Families() {
		if err := lab.Client.AddAddress(more[i]); err != nil {
			t.Fatal(err)
		}
		for _, protocol := range Protocols() {
			to := netip.AddrPortFrom(server.Addr(family), 80)
			for _, source := range []netip.AddrPort{
				netip.AddrPortFrom(more[i].Addr(), 0),
				netip.AddrPortFrom(more[i].Addr(), 777),
				netip.AddrPortFrom(netip.Addr{}, 778),
			} {
				p := Probe{From: lab.Client, To: to, Protocol: protocol, Source: source}
				wantAddr := source.Addr()
				if !wantAddr.IsValid() {
					wantAddr = lab.Client.Addr(family)
				}
				for range 3 { // reuse the same port
					got := p.Send()
					if got.Verdict != Answered || got.Source.Addr() != wantAddr || source.Port() != 0 && got.Source.Port() != source.Port() {
						t.Errorf("%v: %v", p, got)
					}
				}
			}
			foreign := Probe{From: lab.Client, To: to, Protocol: protocol, Source: netip.AddrPortFrom(nth(more[i], 99), 0)}
			if got := foreign.Send(); got.Verdict != Unsent || got.Err == nil {
				t.Errorf("%v: %v", foreign, got)
			}
		}
	}
}

func TestBadProbes(t *testing.T) {
	host := &Host{Name: "client"}
	to := netip.MustParseAddrPort("10.0.0.1:80")
	for _, c := range []struct {
		probe Probe
		want  string
	}{
		{Probe{To: to}, "needs a host"},
		{Probe{From: host}, "needs an address"},
		{Probe{From: host, To: netip.AddrPortFrom(to.Addr(), 0)}, "needs an address"},
		{Probe{From: host, To: to, Protocol: "QUIC"}, "use TCP, UDP or SCTP"},
		{Probe{From: host, To: to, Source: netip.MustParseAddrPort("[::1]:1")}, "cannot be sent from"},
	} {
		got := c.probe.Send()
		if got.Verdict != Unsent || got.Err == nil || !strings.Contains(got.Err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.probe, got, c.want)
		}
	}
}

// TestServerClose checks that closing a server closes its port and its connections,
// and that the port can be served again.
func TestServerClose(t *testing.T) {
	t.Parallel()
	lab := Start(t, Options{})
	from, to := lab.Node1.Pods[0], lab.Node1.Pods[1]
	for _, protocol := range Protocols() {
		server, err := to.Serve(protocol, 80, 81)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := to.Serve(protocol, 82, 81); err == nil {
			t.Errorf("%s: no error for a port that is already served", protocol)
		}
		p := Probe{From: from, To: netip.AddrPortFrom(to.IPv6, 80), Protocol: protocol}
		flow, got := p.Open()
		if flow == nil {
			t.Fatalf("%v: %v", p, got)
		}
		if again := flow.Ask(); again.Verdict != Answered || again.Source != got.Source {
			t.Errorf("%v on the same flow: %v, then %v", p, got, again)
		}
		if err := server.Close(); err != nil {
			t.Fatal(err)
		}
		if late := flow.Ask(); late.Verdict != Refused && late.Verdict != Broken {
			t.Errorf("%v on the flow of a closed server: %v", p, late)
		}
		if err := flow.Close(); err != nil {
			t.Error(err)
		}
		if got := p.Send(); got.Verdict != Refused {
			t.Errorf("%v of a closed server: %v", p, got)
		}
		if _, err := to.Serve(protocol, 80, 81, 82); err != nil {
			t.Errorf("%s: serve again: %v", protocol, err)
		}
		if got := p.Send(); got.Verdict != Answered {
			t.Errorf("%v of the new server: %v", p, got)
		}
	}
}

// TestBroken checks a peer that accepts the connection and closes it without an answer.
func TestBroken(t *testing.T) {
	lab := Start(t, Options{})
	listener, err := lab.Node1.Listen("tcp", ":80")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			connection.Close()
		}
	}()
	if got := (Probe{From: lab.Client, To: netip.AddrPortFrom(lab.Node1.IPv4, 80)}).Send(); got.Verdict != Broken {
		t.Errorf("a connection closed without an answer: %v", got)
	}
}

// translate loads a rule that translates the virtual addresses to the pod, and
// replaces the previous one.
func translate(t *testing.T, lab *Lab, pod *Host) {
	t.Helper()
	var rules strings.Builder
	for i, family := range Families() {
		ip := []string{"ip", "ip6"}[i]
		fmt.Fprintf(&rules, `table %[1]s lab
			delete table %[1]s lab
			table %[1]s lab {
				chain prerouting { type nat hook prerouting priority -100; %[1]s daddr %[2]v dnat to %[3]v; }
			}
			`, ip, virtual(family), pod.Addr(family))
	}
	nft(t, lab.Node1.Host, rules.String())
}

// TestFlow checks that conntrack keeps an open flow at its endpoint, while new flows
// use another endpoint.
func TestFlow(t *testing.T) {
	Require(t, "nft")
	lab := Start(t, Options{ClientRoutes: routesToVirtual()})
	serveAll(t, lab, 80)
	for _, protocol := range Protocols() {
		p := Probe{From: lab.Client, To: netip.AddrPortFrom(virtual(IPv6), 80), Protocol: protocol}
		translate(t, lab, lab.Node1.Pods[0])
		flow, first := p.Open()
		if flow == nil {
			t.Fatalf("%v: %v", p, first)
		}
		translate(t, lab, lab.Node1.Pods[1])
		if got := flow.Ask(); got.Endpoint != "pod1a" || got.Local != first.Local {
			t.Errorf("%v on a kept flow: %v, then %v", p, first, got)
		}
		if got := p.Send(); got.Endpoint != "pod1b" {
			t.Errorf("%v on a new flow: %v", p, got)
		}
		flow.Close()
	}
}

func TestSpread(t *testing.T) {
	lab := Start(t, Options{})
	to := lab.Node1.Pods[0]
	if _, err := to.Serve(TCP, 80); err != nil {
		t.Fatal(err)
	}
	p := Probe{From: lab.Node2.Pods[0], To: netip.AddrPortFrom(to.IPv4, 80)}
	got := p.Spread(500)
	if got.Sent != 500 || got.Failed() != 0 || got.Endpoints["pod1a"] != 500 || got.Reached[p.To] != 500 || got.Sources[p.From.IPv4] != 500 {
		t.Errorf("%v: %v", p, got)
	}
	if want := "500 sent, 500 answered; by pod1a ×500; seen from 10.244.2.2 ×500"; got.String() != want {
		t.Errorf("the tally reads %q, want %q", got, want)
	}
	p.To = netip.AddrPortFrom(to.IPv4, 81)
	if got := p.Spread(150); got.Failed() != 150 || got.Verdicts[Refused] != 150 || len(got.Failures) != 100 {
		t.Errorf("%v: %v with %d failures kept", p, got, len(got.Failures))
	}
	p.To, p.Source = netip.AddrPortFrom(to.IPv4, 80), netip.AddrPortFrom(netip.Addr{}, 999)
	if got := p.Spread(20); got.Failed() != 0 {
		t.Errorf("%v: %v", p, got)
	}
}

// TestStream checks that failures during a stream are counted, and the gap is measured.
func TestStream(t *testing.T) {
	lab := Start(t, Options{})
	to := lab.Node1.Pods[0]
	server, err := to.Serve(TCP, 80)
	if err != nil {
		t.Fatal(err)
	}
	p := Probe{From: lab.Node2.Pods[0], To: netip.AddrPortFrom(to.IPv4, 80)}
	stream := p.Stream(t.Context(), 500)
	eventually(t, "the stream was answered 50 times", func() bool { return stream.Tally().Verdicts[Answered] >= 50 })
	if got := stream.Tally(); got.Failed() != 0 {
		t.Errorf("%v: %v %v", p, got, got.Failures)
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the stream is refused", func() bool { return stream.Tally().Verdicts[Refused] > 0 }) // the last answers may be on their way
	closed := time.Now()
	eventually(t, "the stream was refused 50 times", func() bool { return stream.Tally().Verdicts[Refused] >= 50 })
	gap := time.Since(closed)
	if _, err := to.Serve(TCP, 80); err != nil {
		t.Fatal(err)
	}
	before := stream.Tally().Verdicts[Answered]
	eventually(t, "the stream is answered again", func() bool { return stream.Tally().Verdicts[Answered] > before+50 })
	got := stream.Stop()
	if got.LongestGap < gap {
		t.Errorf("no answers for %v, but the longest gap is %v", gap, got.LongestGap)
	}
	if again := stream.Stop(); again.Sent != got.Sent {
		t.Errorf("a stopped stream continued from %d to %d", got.Sent, again.Sent)
	}
}

// TestUntil checks that the wait ends with the change, from refused and from dropped.
func TestUntil(t *testing.T) {
	Require(t, "nft")
	lab := Start(t, Options{ClientRoutes: routesToVirtual()})
	serveAll(t, lab, 80)
	isAnswered := func(a Answer) bool { return a.Verdict == Answered }
	for _, family := range Families() {
		for _, protocol := range Protocols() {
			p := Probe{From: lab.Client, To: netip.AddrPortFrom(virtual(family), 80), Protocol: protocol}
			t.Run(fmt.Sprintf("%v %s", family, protocol), func(t *testing.T) {
				nft(t, lab.Node1.Host, "table ip lab\ndelete table ip lab\ntable ip6 lab\ndelete table ip6 lab\n")
				untilTranslated(t, lab, p, isAnswered)
			})
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	p := Probe{From: lab.Client, To: netip.AddrPortFrom(lab.Node1.IPv4, 9), Protocol: TCP}
	if _, got, err := p.Until(ctx, isAnswered); !errors.Is(err, context.DeadlineExceeded) || got.Verdict != Refused {
		t.Errorf("%v: an answer that never comes: %v, %v", p, got, err)
	}
}

// untilTranslated makes the change that the probe waits for and checks the time.
func untilTranslated(t *testing.T, lab *Lab, p Probe, isAnswered func(Answer) bool) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	changing := make(chan time.Time, 1)
	var change sync.WaitGroup
	defer change.Wait()
	change.Go(func() {
		time.Sleep(100 * time.Millisecond)
		changing <- time.Now()
		translate(t, lab, lab.Node1.Pods[0])
	})
	started := time.Now()
	took, got, err := p.Until(ctx, isAnswered)
	if err != nil || got.Endpoint != "pod1a" {
		t.Fatalf("%v: %v, %v", p, got, err)
	}
	if least := (<-changing).Sub(started); took < least {
		t.Errorf("%v saw the change after %v, want at least %v", p, took, least)
	}
	if _, got, err := p.Until(ctx, isAnswered); err != nil || got.Verdict != Answered {
		t.Errorf("%v: an answer that is already wanted: %v, %v", p, got, err)
	}
}
