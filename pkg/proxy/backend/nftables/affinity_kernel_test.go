package nftables

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/backendtest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/cases"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
	"github.com/seed-11a05479/kube-proxy/test/laws"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// sticky is a lab with a Service that has session affinity with this timeout in seconds; 0 is none.
type sticky struct {
	t       *testing.T
	lab     *netns.Lab
	backend *Backend
	family  cluster.Family
	seconds int
	// endpoints are in YAML.
	endpoints []string
	// ranges are the source ranges of the load balancer IPs.
	ranges []string
}

const (
	ep1a = "{addresses: [10.244.1.2], nodeName: node1}"
	ep2a = "{addresses: [10.244.2.2], nodeName: node2}"
	ep2b = "{addresses: [10.244.2.3], nodeName: node2}"
	// dead has an address that does not answer.
	dead = "{addresses: [172.18.0.99], nodeName: node2}"
)

func newSticky(t *testing.T, family cluster.Family) *sticky {
	b := backendtest.NewBench(t, openBoth)
	s := &sticky{t: t, lab: b.Lab, backend: b.Backend.(*Backend), family: family, seconds: 300, endpoints: []string{ep1a, ep2a, ep2b}}
	s.sync()
	return s
}

// plan returns the plan for the Service, and for similar ones with other timeouts.
func (s *sticky) plan(others ...int) *plan.Plan {
	yaml := ""
	for i, seconds := range append([]int{s.seconds}, others...) {
		affinity := "None"
		if seconds > 0 {
			affinity = fmt.Sprintf("ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: %d}}", seconds)
		}
		name := fmt.Sprint("default/web-", i)
		yaml += clusters.Service(name, fmt.Sprintf("clusterIP: 10.96.0.%d, ports: [{name: http, port: 80, nodePort: %d}], type: LoadBalancer, loadBalancerSourceRanges: [%s], sessionAffinity: %s",
			10+i, 30080+i, strings.Join(s.ranges, ", "), affinity)) + clusters.LoadBalancer(fmt.Sprint("192.0.2.", 10+i)) +
			clusters.Slice(name, fmt.Sprint("web-", i), "{name: http, port: 8080}", s.endpoints...)
	}
	snap, err := cases.Snapshot(yaml, s.family)
	if err != nil {
		s.t.Fatal(err)
	}
	return plan.Compute(snap, &plan.Options{NodePorts: plan.NodePortAddresses{Primary: true}, MasqueradeAll: true}, nil)
}

func (s *sticky) sync(others ...int) {
	s.t.Helper()
	p := s.plan(others...)
	if err := s.lab.Node1.Do(func() error { return laws.Err(s.backend.Sync(s.t.Context(), p)) }); err != nil {
		s.t.Fatal(err)
	}
	holds(s.t, s.backend, p)
}

// addresses returns the addresses of the nth Service: cluster IP, load balancer IP and node port.
func (s *sticky) addresses(n int) []netip.AddrPort {
	texts := []string{"10.96.0.%d", "192.0.2.%d", "172.18.0.11"}
	if s.family == cluster.IPv6 {
		texts = []string{"fd00:10:96::%x", "fd00:192::2:%x", "fd00:172:18::b"}
	}
	ip := func(format string) netip.Addr { return netip.MustParseAddr(fmt.Sprintf(format, 10+n)) }
	return []netip.AddrPort{netip.AddrPortFrom(ip(texts[0]), 80), netip.AddrPortFrom(ip(texts[1]), 80),
		netip.AddrPortFrom(netip.MustParseAddr(texts[2]), uint16(30080+n))}
}

// ask sends one connection.
func (s *sticky) ask(from *netns.Host, to netip.AddrPort) string {
	s.t.Helper()
	answer := netns.Probe{From: from, To: to}.Send()
	if answer.Verdict != netns.Answered {
		s.t.Fatalf("%s to %s: %s", from, to, answer)
	}
	return answer.Endpoint
}

// stays checks that a client reaches the same endpoint by every address, and returns it.
func (s *sticky) stays(from *netns.Host, service int) string {
	s.t.Helper()
	first := s.ask(from, s.addresses(service)[0])
	for range 8 {
		for _, to := range s.addresses(service) {
			if got := s.ask(from, to); got != first {
				s.t.Fatalf("%s to %s: answered by %s after %s", from, to, got, first)
			}
		}
	}
	return first
}

// spreads reports whether 32 connections reach several endpoints. The probability that they reach one by chance is
// negligible.
func (s *sticky) spreads(from *netns.Host) bool {
	s.t.Helper()
	return len(netns.Probe{From: from, To: s.addresses(0)[0]}.Spread(32).Endpoints) > 1
}

// pool returns the Cluster pool of the nth Service.
func (s *sticky) pool(n int) poolID {
	return poolOf(&plan.Route{Name: fmt.Sprintf("default/web-%d:http", n), Frontend: plan.Frontend{Protocol: cluster.TCP}})
}

// of returns the backend's part for the family.
func (s *sticky) of() *family {
	if s.family == cluster.IPv6 {
		return s.backend.families[1]
	}
	return s.backend.families[0]
}

// remembered returns the number of clients of the nth Service.
func (s *sticky) remembered(n int) int {
	s.t.Helper()
	return len(clients(s.t, s.of(), s.pool(n)))
}

// inFamilies runs a test in both families, each with its own lab.
func inFamilies(t *testing.T, test func(*sticky)) {
	for _, family := range []cluster.Family{cluster.IPv4, cluster.IPv6} {
		t.Run(family.String(), func(t *testing.T) { test(newSticky(t, family)) })
	}
}

// without removes a pod from a list of endpoints.
func without(endpoints []string, pod string) []string {
	names := map[string]string{"pod1a": ep1a, "pod2a": ep2a, "pod2b": ep2b}
	return slices.DeleteFunc(slices.Clone(endpoints), func(e string) bool { return e == names[pod] })
}

// TestKernelAffinityMoves removes endpoints or makes them unready, also while no proxy runs: only their clients move,
// and then stay.
func TestKernelAffinityMoves(t *testing.T) {
	t.Parallel()
	inFamilies(t, func(s *sticky) {
		all := s.endpoints
		hosts := []*netns.Host{s.lab.Client, s.lab.Node1.Host, s.lab.Node1.Pods[0], s.lab.Node1.Pods[1]}
		at := map[*netns.Host]string{}
		for _, host := range hosts {
			at[host] = s.stays(host, 0)
		}
		for step, leave := range []func(pod string){
			func(pod string) { s.endpoints = without(all, pod); s.sync() },
			func(pod string) {
				gone := map[string]string{"pod1a": ep1a, "pod2a": ep2a, "pod2b": ep2b}[pod]
				s.endpoints = append(without(all, pod), strings.Replace(gone, "}", ", conditions: {ready: false, serving: true, terminating: true}}", 1))
				s.sync()
			},
			func(pod string) {
				s.endpoints = without(all, pod)
				s.backend = openIn(s.t, s.lab.Node1.Host)
				s.sync()
			},
		} {
			gone := at[s.lab.Client]
			leave(gone)
			for _, host := range hosts {
				now := s.stays(host, 0)
				if now == gone || at[host] != gone && now != at[host] {
					s.t.Errorf("step %d: %s left; %s went from %s to %s", step, gone, host, at[host], now)
				}
				at[host] = now
			}
			s.endpoints = all
			s.sync()
			for _, host := range hosts {
				if now := s.stays(host, 0); now != at[host] {
					s.t.Errorf("step %d: %s is back, and %s went from %s to %s", step, gone, host, at[host], now)
				}
			}
		}
	})
}

// TestKernelAffinitySwitches disables and enables affinity, and changes the timeout, while the backend runs.
func TestKernelAffinitySwitches(t *testing.T) {
	t.Parallel()
	inFamilies(t, func(s *sticky) {
		s.stays(s.lab.Client, 0)
		for _, seconds := range []int{0, 60, 86_400, 0, 300} {
			s.seconds = seconds
			s.sync()
			if seconds == 0 {
				if !s.spreads(s.lab.Client) {
					s.t.Error("all connections go to one endpoint without affinity")
				}
				continue
			}
			s.stays(s.lab.Client, 0)
			if n := s.remembered(0); n != 1 {
				s.t.Errorf("%d clients are remembered for %d seconds, want 1", n, seconds)
			}
		}
	})
}

// TestKernelAffinityTimeouts has Services with many timeouts, and checks that a client is forgotten.
func TestKernelAffinityTimeouts(t *testing.T) {
	t.Parallel()
	inFamilies(t, func(s *sticky) {
		var others []int
		for i := range 20 {
			others = append(others, 3600+i*4000) // up to 79,600
		}
		s.seconds = 1
		s.sync(others...)
		for i := range others {
			s.stays(s.lab.Client, 1+i)
		}
		s.ask(s.lab.Client, s.addresses(0)[0])
		for deadline := time.Now().Add(30 * time.Second); s.remembered(0) > 0; time.Sleep(100 * time.Millisecond) {
			if time.Now().After(deadline) {
				s.t.Fatal("a client is remembered for more than 30 s although the timeout is 1 s")
			}
		}
		for i, seconds := range others {
			if n := s.remembered(1 + i); n != 1 {
				s.t.Errorf("%d clients are remembered for %d seconds, want 1", n, seconds)
			}
		}
	})
}

// TestKernelAffinitySlides checks that each connection restarts the timeout.
func TestKernelAffinitySlides(t *testing.T) {
	t.Parallel()
	inFamilies(t, func(s *sticky) {
		s.seconds = 100
		s.sync()
		s.ask(s.lab.Client, s.addresses(0)[0])
		// If the machine was stalled for longer than the sleep, the test tries again.
		for range 10 {
			before := s.expires()
			time.Sleep(2 * time.Second)
			s.ask(s.lab.Client, s.addresses(0)[0])
			if s.expires() > before {
				return
			}
		}
		s.t.Error("connections do not prolong the time for which their client is remembered")
	})
}

// expires returns the remaining time of the only client.
func (s *sticky) expires() time.Duration {
	s.t.Helper()
	table := dialectOf(s.family).ip
	out, err := s.lab.Node1.Command("nft", "list", "map", table, TableName, s.pool(0).clients()).Output()
	if err != nil {
		s.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(out), " expires ")
	text, _, _ := strings.Cut(rest, " ")
	left, err := time.ParseDuration(text)
	if err != nil {
		s.t.Fatalf("%v in\n%s", err, out)
	}
	return left
}

// TestKernelAffinityForgetsRemoved checks that retransmissions to a removed endpoint that never answers do not restore
// it for the client's next connection.
func TestKernelAffinityForgetsRemoved(t *testing.T) {
	t.Parallel()
	inFamilies(t, func(s *sticky) {
		s.endpoints = []string{dead}
		s.sync()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if c, err := s.lab.Client.Dial(ctx, "tcp", s.addresses(0)[0].String()); err == nil {
				c.Close()
			}
		}()
		for deadline := time.Now().Add(30 * time.Second); s.remembered(0) == 0; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				s.t.Fatal("the client is not remembered")
			}
		}
		s.endpoints = []string{dead, ep2a}
		s.sync()
		s.endpoints = []string{ep2a}
		s.sync()
		time.Sleep(4 * time.Second) // TCP retransmits after 1 s and 3 s
		if n := s.remembered(0); n != 0 {
			s.t.Errorf("%d clients are remembered with an endpoint that left", n)
		}
		if got := s.stays(s.lab.Client, 0); got != "pod2a" {
			s.t.Errorf("answered by %s", got)
		}
		cancel()
		<-ended
	})
}

// TestKernelAffinityFull fills a map: new clients are served and not remembered, and counted; old ones stay. Removing an endpoint
// makes room, in parts: a change of another Service takes effect in between, and does not wait for all of them.
func TestKernelAffinityFull(t *testing.T) {
	t.Parallel()
	inFamilies(t, func(s *sticky) {
		s.sync(s.seconds)
		at := s.stays(s.lab.Client, 0)
		s.fill(0)
		for range 50 {
			s.ask(s.lab.Node1.Pods[1], s.addresses(0)[0])
		}
		if now := s.stays(s.lab.Client, 0); now != at {
			s.t.Errorf("the client went from %s to %s", at, now)
		}
		if full := s.counted(); full.Fullest != 1 || full.Refused < 50 {
			s.t.Errorf("50 connections that were not remembered count as %+v", full)
		}
		all := s.endpoints
		s.endpoints = without(s.endpoints, map[string]string{"pod1a": "pod2a", "pod2a": "pod2b", "pod2b": "pod1a"}[at])
		p, started := s.plan(s.seconds), time.Now()
		var results []backend.Result
		if err := s.lab.Node1.Do(func() error { results = s.backend.Sync(s.t.Context(), p); return nil }); err != nil {
			s.t.Fatal(err)
		}
		for _, result := range results {
			if result.Err != nil || result.Elements > forgetPart {
				s.t.Errorf("the Sync changed %d elements (%v), of which clients to forget may be at most %d", result.Elements, result.Err, forgetPart)
			}
		}
		took := time.Since(started)
		if now := s.stays(s.lab.Node1.Pods[1], 1); !s.backend.CheckSoon() {
			s.t.Errorf("all clients are forgotten already when a client of another Service, at %s, asks", now)
		}
		parts := forgetAll(s.t, s.backend)
		if least := mapSizes[0] / 3 * 2 / forgetPart; parts < least {
			s.t.Errorf("the clients of an endpoint were forgotten in %d parts, want at least %d", parts, least)
		}
		s.t.Logf("one of 3 endpoints left: the Sync took %v, and %d checks until all its %d clients forgot it %v", took, parts, mapSizes[0]/3, time.Since(started))
		holds(s.t, s.backend, p)
		if n := s.remembered(0); n < mapSizes[0]/2 || n > mapSizes[0]*3/4 {
			s.t.Errorf("%d clients are remembered after one of 3 endpoints left", n)
		}
		if now := s.stays(s.lab.Client, 0); now != at {
			s.t.Errorf("the client went from %s to %s", at, now)
		}
		s.stays(s.lab.Node1.Pods[1], 0)
		s.endpoints = all
		s.sync(s.seconds)
	})
}

// fill fills the map of the nth Service.
func (s *sticky) fill(n int) {
	s.t.Helper()
	f, pool := s.of(), s.pool(n)
	m, _ := f.have.holds.pools.Get(pool)
	writer := &output{ctx: s.t.Context(), table: f.table, batch: f.batch}
	f.batch.Reset()
	for i := range mapSizes[0] - s.remembered(n) {
		e := clientElement(f, pool, i, m.endpoints[i%len(m.endpoints)])
		fill(writer, pool, &e)
	}
	if err := writer.commit(); err != nil {
		s.t.Fatal(err)
	}
	s.waitFull(n)
}

// waitFull waits until the map of the nth Service is read as full: while the kernel resizes it, its answers lack some elements.
func (s *sticky) waitFull(n int) {
	s.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); s.remembered(n) != mapSizes[0]; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("%d clients are remembered, want %d", s.remembered(n), mapSizes[0])
		}
	}
}

// counted returns what the metrics show.
func (s *sticky) counted() (clients backend.Clients) {
	s.t.Helper()
	var err error
	if entered := s.lab.Node1.Do(func() error { clients, err = s.backend.clients(s.family); return nil }); entered != nil || err != nil {
		s.t.Fatal(entered, err)
	}
	return clients
}

// TestKernelAffinityFlood sends first packets from more sources than a map holds to one Service: clients of another one with the
// same timeout are remembered all the same.
func TestKernelAffinityFlood(t *testing.T) {
	t.Parallel()
	inFamilies(t, func(s *sticky) {
		s.sync(s.seconds)
		backendtest.Flood(s.t, s.lab.Client, s.addresses(1)[2], mapSizes[0]*3/2)
		s.waitFull(1)
		if full := s.counted(); full.Fullest != 1 || full.Refused == 0 {
			s.t.Errorf("a flood counts as %+v", full)
		}
		for _, host := range []*netns.Host{s.lab.Client, s.lab.Node1.Host, s.lab.Node1.Pods[0], s.lab.Node1.Pods[1]} {
			s.stays(host, 0)
		}
		if n := s.remembered(0); n != 4 {
			s.t.Errorf("%d clients of the other Service are remembered, want 4", n)
		}
	})
}

// TestKernelManySourceRanges changes the source ranges of a load balancer IP, which are one rule, to hundreds of ranges
// on a running backend.
func TestKernelManySourceRanges(t *testing.T) {
	t.Parallel()
	inFamilies(t, func(s *sticky) {
		s.seconds = 0
		vip := s.addresses(0)[1]
		lets := func(want netns.Verdict) {
			s.t.Helper()
			if answer := (netns.Probe{From: s.lab.Client, To: vip}).Send(); answer.Verdict != want {
				s.t.Errorf("with %d ranges the client meets %s, want %s", len(s.ranges), answer, want)
			}
		}
		var many []string
		for i := range 500 {
			many = append(many, fmt.Sprintf("10.%d.%d.0/24", 1+i/250, 1+i%250))
		}
		for _, step := range []struct {
			ranges []string
			want   netns.Verdict
		}{
			{many, netns.Dropped}, {append(slices.Clone(many), "172.18.0.100/32"), netns.Answered}, {many[:400], netns.Dropped},
			{nil, netns.Answered}, {many, netns.Dropped}, {append(slices.Clone(many), `"0.0.0.0/0"`), netns.Answered},
		} {
			s.ranges = step.ranges
			s.sync()
			lets(step.want)
			for of := range s.backend.families[0].have.holds.lists.All() {
				out, err := s.lab.Node1.Command("nft", "-a", "list", "chain", "ip", TableName, of.name()).Output()
				if err != nil || strings.Count(string(out), "# handle") != 2 { // the chain's and the rule's
					s.t.Errorf("chain %s: %v\n%s", of.name(), err, out)
				}
			}
		}
	})
}
