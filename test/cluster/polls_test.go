//go:build linux

package cluster

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// lacks returns a complaint unless a text contains a word.
func lacks(text io.Reader, word string) string {
	all, err := io.ReadAll(text)
	if err != nil {
		return err.Error()
	}
	if !strings.Contains(string(all), word) {
		return "no " + word
	}
	return ""
}

// rate is how many connections each poller opens per second, and how many requests it sends on one that it holds.
const rate = 10

// polls are pollers and connections that are held.
type polls struct {
	w       *world
	probes  []netns.Probe
	streams []*netns.Stream

	held   []netns.Probe
	stop   context.CancelFunc
	asking sync.WaitGroup

	mu    sync.Mutex
	asked []int
	// broken are the answers on held connections that are none, and gaps the longest times between two answers.
	broken [][]netns.Answer
	gaps   []time.Duration
}

// probes are the pollers, from Pods, nodes and an external client to addresses of every kind and policy.
func (w *world) probes() (opened, held []netns.Probe) {
	node := w.lab.Nodes()
	pod := func(i int) *netns.Host { return node[i].Pods[0] }
	port := func(i, number int, family netns.Family) string {
		return netip.AddrPortFrom(node[i].Addr(family), uint16(number)).String()
	}
	probe := func(from *netns.Host, protocol netns.Protocol, to string) netns.Probe {
		return netns.Probe{From: from, To: netip.MustParseAddrPort(to), Protocol: protocol, Timeout: 900 * time.Millisecond}
	}
	opened = []netns.Probe{
		probe(pod(0), netns.TCP, "10.96.0.10:80"), // cluster IPs
		probe(pod(1), netns.TCP, "[fd00:10:96::10]:80"),
		probe(pod(2), netns.UDP, "10.96.0.10:80"),
		probe(node[0].Host, netns.TCP, "10.96.0.10:80"),
		probe(node[2].Host, netns.TCP, "[fd00:10:96::10]:80"),
		probe(pod(1), netns.TCP, "10.96.0.12:80"), // internalTrafficPolicy: Local
		probe(node[1].Host, netns.TCP, "[fd00:10:96::12]:80"),
		probe(w.lab.Client, netns.TCP, port(0, 30080, netns.IPv4)), // node ports
		probe(w.lab.Client, netns.TCP, port(1, 30080, netns.IPv6)),
		probe(pod(2), netns.TCP, port(2, 30080, netns.IPv4)),
		probe(w.lab.Client, netns.TCP, port(2, 30081, netns.IPv4)), // externalTrafficPolicy: Local
		probe(w.lab.Client, netns.TCP, "192.0.2.1:80"),             // load balancer addresses
		probe(w.lab.Client, netns.TCP, "192.0.2.2:80"),             // externalTrafficPolicy: Local
		probe(pod(2), netns.TCP, "192.0.2.2:80"),
		probe(node[1].Host, netns.TCP, "192.0.2.1:80"),
	}
	held = []netns.Probe{
		probe(pod(0), netns.TCP, "10.96.0.13:80"),
		probe(pod(1), netns.UDP, "[fd00:10:96::13]:80"),
		probe(node[2].Host, netns.TCP, "[fd00:10:96::13]:80"),
		probe(w.lab.Client, netns.TCP, port(0, 30083, netns.IPv4)),
		probe(w.lab.Client, netns.TCP, "192.0.2.3:80"),
	}
	return opened, held
}

// poll starts the pollers, when all addresses answer.
func (w *world) poll() *polls {
	w.t.Helper()
	p := &polls{w: w}
	p.probes, p.held = w.probes()
	for _, probe := range slices.Concat(p.probes, p.held) {
		w.eventually(probe.String(), func() string {
			if answer := probe.Send(); answer.Verdict != netns.Answered {
				return answer.String()
			}
			return ""
		})
	}
	var ctx context.Context
	ctx, p.stop = context.WithCancel(context.Background())
	p.asked, p.broken, p.gaps = make([]int, len(p.held)), make([][]netns.Answer, len(p.held)), make([]time.Duration, len(p.held))
	for i, probe := range p.held {
		flow, answer := probe.Open()
		if flow == nil {
			w.t.Fatalf("%s: %s", probe, answer)
		}
		p.asking.Go(func() { p.hold(ctx, i, flow) })
	}
	for _, probe := range p.probes {
		p.streams = append(p.streams, probe.Stream(ctx, rate))
	}
	return p
}

// hold sends requests on a connection until ctx ends.
func (p *polls) hold(ctx context.Context, i int, flow *netns.Flow) {
	defer flow.Close()
	tick := time.NewTicker(time.Second / rate)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		answer := flow.Ask()
		p.mu.Lock()
		p.asked[i]++
		if answer.Verdict == netns.Answered {
			p.gaps[i] = max(p.gaps[i], time.Since(last))
			last = time.Now()
		} else {
			p.broken[i] = append(p.broken[i], answer)
		}
		p.mu.Unlock()
	}
}

// end stops the pollers and prints their figures. Connections that failed fail the test.
func (p *polls) end(what string) {
	p.w.t.Helper()
	p.stop()
	var made, failed int
	var longest time.Duration
	var lines []string
	for i, s := range p.streams {
		t := s.Stop()
		made, failed, longest = made+t.Sent, failed+t.Failed(), max(longest, t.LongestGap)
		line := fmt.Sprintf("%-55s %5d connections, %d failed, longest gap %v", p.probes[i], t.Sent, t.Failed(), t.LongestGap.Round(time.Millisecond))
		if t.Sent == 0 {
			p.w.t.Errorf("%s: %s opened no connection", what, p.probes[i])
		}
		if t.Failed() > 0 {
			line += fmt.Sprintf("; the first: %s", t.Failures[0])
		}
		lines = append(lines, line)
	}
	p.asking.Wait()
	for i, probe := range p.held {
		line := fmt.Sprintf("%-55s %5d requests on one, %d failed, longest gap %v", probe, p.asked[i], len(p.broken[i]), p.gaps[i].Round(time.Millisecond))
		failed += len(p.broken[i])
		longest = max(longest, p.gaps[i])
		if p.asked[i] == 0 {
			p.w.t.Errorf("%s: %s sent no request", what, probe)
		}
		if len(p.broken[i]) > 0 {
			line += fmt.Sprintf("; the first: %s", p.broken[i][0])
		}
		lines = append(lines, line)
	}
	p.w.t.Logf("%s: %d connections, %d failures, longest gap %v\n%s", what, made, failed, longest.Round(time.Millisecond), strings.Join(lines, "\n"))
	if failed > 0 {
		p.w.t.Errorf("%s: %d failures", what, failed)
	}
}
