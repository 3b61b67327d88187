//go:build linux

// Package backendtest tests backends: it sends the packets of the cases in test/cases to a kernel that the backend has
// programmed, in both address families.
package backendtest

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/cases"
	"github.com/seed-11a05479/kube-proxy/test/laws"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// Ports are the ports that every pod and node serves, in TCP, UDP and SCTP.
var Ports = []uint16{8080, 8081, 5353}

// routed are the destinations that the client routes to node1: cluster IPs and load balancer IPs.
var routed = []netip.Prefix{
	netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:10:96::/48"),
	netip.MustParsePrefix("192.0.0.0/8"), netip.MustParsePrefix("fd00:192::/32"),
}

// Open creates the backend to be tested. It is called inside the node's network namespace.
type Open func() (backend.Backend, error)

// Site is a test network with a backend in node1.
type Site struct {
	Lab *netns.Lab
	// Backend may be replaced. The current one is closed at the end of the test.
	Backend backend.Backend
}

// newSite creates the test network and opens the backend.
func newSite(t *testing.T, options netns.Options, open Open) *Site {
	t.Helper()
	s := &Site{Lab: netns.Start(t, options)}
	if err := s.Lab.Node1.Do(func() (err error) { s.Backend, err = open(); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Backend.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Sync programs a plan.
func (s *Site) Sync(t *testing.T, p *plan.Plan) []backend.Result {
	t.Helper()
	var results []backend.Result
	_ = s.Lab.Node1.Do(func() error { results = s.Backend.Sync(context.Background(), p); return nil })
	if err := laws.Err(results); err != nil {
		t.Fatal(err)
	}
	return results
}

// Bench is a Site that runs cases.
type Bench struct {
	*Site
	// BackendName is the backend's name in cases that expect a different result for it.
	BackendName string
	// last is the endpoint of the previous packet, if there was only one.
	last string
}

// NewBench creates a test network in which every pod serves Ports, and opens the backend in node1.
func NewBench(t *testing.T, open Open) *Bench {
	t.Helper()
	b := &Bench{Site: newSite(t, netns.Options{ClientRoutes: routed}, open)}
	for _, node := range b.Lab.Nodes() {
		for _, host := range append(slices.Clone(node.Pods), node.Host) {
			for _, protocol := range netns.Protocols() {
				if _, err := host.Serve(protocol, Ports...); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return b
}

// Run runs all cases of a folder with one backend, without restarting it. name is the backend's in cases that expect a
// different result for it.
func Run(t *testing.T, dir, name string, open Open) {
	b := NewBench(t, open)
	b.BackendName = name
	for _, c := range cases.Named(t, dir, "") {
		if !c.For(name) {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			b.Sync(t, c.Plan())
			b.Ask(t, c)
			if t.Failed() {
				b.show(t, c.Family)
			}
		})
	}
}

// Ask sends the packets of a case. Those without an expected answer are sent at the same time, because they take
// long.
func (b *Bench) Ask(t *testing.T, c *cases.Case) {
	t.Helper()
	eachAddress(t, c.NodeAddresses, b.Lab.Node1.AddAddress)
	defer eachAddress(t, c.NodeAddresses, b.Lab.Node1.DelAddress)
	var probes []netns.Probe
	var unanswered []cases.Packet
	if c.Before == nil {
		b.last = ""
	}
	for _, packet := range c.Packets {
		packet = packet.By(b.BackendName)
		from, err := b.Lab.Host(packet.From)
		if err != nil {
			t.Fatalf("%s, packets, line %d: %v", c.Path, packet.Line, err)
		}
		probe := netns.Probe{From: from, To: packet.To, Protocol: netns.Protocol(packet.Protocol.String())}
		if packet.Verdict != plan.Balance {
			probes, unanswered = append(probes, probe), append(unanswered, packet)
			continue
		}
		if b.last, err = b.ask(probe, packet, b.last); err != nil {
			t.Errorf("%s, packets, line %d: %v", c.Path, packet.Line, err)
		}
	}
	for i, answer := range netns.SendAll(probes...) {
		packet := unanswered[i]
		if want := unserved(packet); answer.Verdict != want {
			t.Errorf("%s, packets, line %d: %s: want %s, got %s", c.Path, packet.Line, probes[i], want, answer)
		}
		if answer.Denied != packet.AtSend {
			t.Errorf("%s, packets, line %d: %s: send fails with EPERM: %v, want %v (%s)", c.Path, packet.Line, probes[i], answer.Denied, packet.AtSend, answer)
		}
	}
}

// eachAddress adds or removes single addresses of a host.
func eachAddress(t *testing.T, addrs []netip.Addr, change func(netip.Prefix) error) {
	t.Helper()
	for _, addr := range addrs {
		if err := change(netip.PrefixFrom(addr, addr.BitLen())); err != nil {
			t.Error(err)
		}
	}
}

// unserved returns the expected result of a packet without an endpoint. If the plan passes a packet to the node
// itself, the node's own servers answer, or the port is closed; the gateway drops other packets that pass.
func unserved(packet cases.Packet) netns.Verdict {
	switch {
	case packet.Verdict == plan.Reject:
		return netns.Refused
	case packet.Verdict == plan.Drop || !slices.Contains(cases.Interfaces, packet.To.Addr()):
		return netns.Dropped
	case slices.Contains(Ports, packet.To.Port()):
		return netns.Answered
	}
	return netns.Refused
}

// probesPerEndpoint is the average number of connections per endpoint. The probability that one of four gets none is
// 4 · (3/4)^64, one in 25 million.
const probesPerEndpoint = 16

// ask sends a packet often enough to reach every endpoint, and compares the answers. last is the endpoint of the
// previous line; the result is the endpoint of this line, if there is only one.
func (b *Bench) ask(probe netns.Probe, p cases.Packet, last string) (endpoint string, err error) {
	want := p.Endpoints
	switch p.Choice {
	case cases.OneOf: // the first connection decides
		last = probe.Send().Endpoint
		if !slices.Contains(p.Endpoints, last) {
			return "", fmt.Errorf("%s: want one of %v, got %q", probe, p.Endpoints, last)
		}
		fallthrough
	case cases.TheSame:
		want = []string{last}
	}
	tally := probe.Spread(probesPerEndpoint * len(p.Endpoints))
	if tally.Failed() > 0 {
		return "", fmt.Errorf("%s: %s; the first failure: %s", probe, tally, tally.Failures[0])
	}
	var seen []string
	for pair := range tally.Pairs {
		seen = append(seen, pair.Endpoint)
		want := p.SeenAs
		if pair.Endpoint == p.From { // hairpin: replies must return through the node
			want = cases.Node
		}
		if got := b.nameOf(pair.Source); got != want {
			return "", fmt.Errorf("%s: %s saw %s (%s), want %s", probe, pair.Endpoint, got, pair.Source, want)
		}
	}
	slices.Sort(seen)
	if seen = slices.Compact(seen); !slices.Equal(seen, want) {
		return "", fmt.Errorf("%s: want answers of %v, got %s", probe, want, tally)
	}
	if len(seen) == 1 {
		endpoint = seen[0]
	}
	return endpoint, nil
}

// nameOf returns the host that has an address; the node also has its bridge's.
func (b *Bench) nameOf(addr netip.Addr) string {
	for _, host := range b.Lab.Hosts() {
		if host.IPv4 == addr || host.IPv6 == addr {
			return host.Name
		}
	}
	if slices.Contains(cases.Interfaces, addr) {
		return cases.Node
	}
	return "unknown host"
}

// show logs the kernel's ruleset after a failure.
func (b *Bench) show(t *testing.T, family cluster.Family) {
	t.Helper()
	out, err := b.Lab.Node1.Command("nft", "list", "ruleset").CombinedOutput()
	t.Logf("%s, nft list ruleset (%v):\n%s", family, err, strings.TrimSpace(string(out)))
}
