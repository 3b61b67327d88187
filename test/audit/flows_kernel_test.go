//go:build linux

package audit

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// held is the number of addresses to which flows are open over a change, each how many flows there are to one.
const held, each = 200, 4

// opened is the first packet of flows, what became of it, and where.
type opened struct {
	packet
	became  string
	reached netip.AddrPort
}

// flow is an open one, and its frontend before the change.
type flow struct {
	*netns.Flow
	probe    netns.Probe
	frontend frontend
}

// open opens flows to some addresses. Those that only one of the proxies sent to an endpoint, which is picked at random, are closed.
func (p *pair) open(all map[packet]frontend) {
	packets := slices.SortedFunc(maps.Keys(all), func(a, b packet) int { return strings.Compare(a.String(), b.String()) })
	p.random.Shuffle(len(packets), func(i, j int) { packets[i], packets[j] = packets[j], packets[i] })
	packets = slices.Repeat(packets[:min(len(packets), held)], each)
	p.both(func(i int) {
		p.flows[i] = map[opened][]flow{}
		var mu sync.Mutex
		parallel(packets, func(at int, k packet) {
			probe := k.probe(p.labs[i], p.sent+at)
			if f, answer := probe.Open(); f != nil {
				mu.Lock()
				defer mu.Unlock()
				o := opened{k, outcome(answer), answer.Reached}
				p.flows[i][o] = append(p.flows[i][o], flow{f, probe, all[k]})
			}
		})
	})
	p.sent += len(packets)
	for i, other := range []map[opened][]flow{p.flows[1], p.flows[0]} {
		maps.DeleteFunc(p.flows[i], func(o opened, flows []flow) bool {
			if other[o] == nil {
				closeAll(flows)
			}
			return other[o] == nil
		})
	}
}

// ask compares what becomes of the flows that were open before a change, and closes them.
func (p *pair) ask(n int, current map[packet]frontend) {
	var became [2]map[opened]string
	for _, pause := range []time.Duration{time.Second, time.Second, 3 * time.Second} { // entries are deleted after rules have changed
		time.Sleep(pause)
		p.both(func(i int) {
			became[i] = map[opened]string{}
			var mu sync.Mutex
			parallel(slices.Collect(maps.Keys(p.flows[i])), func(_ int, o opened) {
				words := map[string]bool{}
				for _, f := range p.flows[i][o] {
					words[f.fate(o, current[o.packet])] = true
				}
				mu.Lock()
				defer mu.Unlock()
				became[i][o] = strings.Join(slices.Sorted(maps.Keys(words)), " or ")
			})
		})
		if maps.Equal(became[0], became[1]) {
			break
		}
	}
	for o, ours := range became[0] {
		p.asked += len(p.flows[0][o])
		f, theirs := p.flows[0][o][0].frontend, became[1][o]
		switch row := p.intendedFate(f, current[o.packet], o, ours, theirs); {
		case row != "":
			p.named[row]++
		case ours != theirs && f.service != nil && p.random.gaps[f.service.Name]:
			p.named["(a Service or an endpoint was away for a moment: a proxy may not notice)"]++
		case ours != theirs:
			p.Errorf("round %d, %v: flow %s (%s), %s: ours %s; theirs %s\nbefore:\n%s\nafter:\n%s", n, p.random.steps, o.packet, f.kind, o.became, ours, theirs,
				p.random.describe(f.service), p.random.describe(p.random.named(f.service)))
		}
		closeAll(p.flows[0][o])
		closeAll(p.flows[1][o])
	}
}

// fate describes what becomes of a flow: a UDP flow that ends may be answered by another endpoint, which is picked at random. If sessions have
// affinity before and after a change, also of the external client's next one.
func (f flow) fate(o opened, after frontend) string {
	word := func(a netns.Answer) string {
		switch became := outcome(a); {
		case became == o.became:
			return "stays"
		case o.protocol == netns.UDP:
			return "ends"
		case a.Verdict == netns.Answered:
			return "moves"
		default:
			return became
		}
	}
	fate := word(f.Ask())
	if sticky := corev1.ServiceAffinityClientIP; o.from == "external" && f.frontend.continues(after) &&
		f.frontend.service.Spec.SessionAffinity == sticky && after.service.Spec.SessionAffinity == sticky {
		fate = fmt.Sprintf("%s, the next one %s", fate, word(f.probe.Send()))
	}
	return fate
}

// intendedFate returns what a difference of a flow's fate is in docs/differences.md, if it is there, or (in parentheses) that nothing is right.
func (p *pair) intendedFate(before, after frontend, o opened, ours, theirs string) string {
	switch {
	case ours == theirs || o.protocol != netns.UDP:
		return ""
	case strings.HasPrefix(theirs, "ends") && strings.HasPrefix(ours, "stays") && p.random.contradicts(after.service, o.reached):
		return "(an endpoint is ready, but not serving: what counts is not defined)"
	case !strings.HasPrefix(theirs, "stays") || !strings.HasPrefix(ours, "ends"):
		return ""
	case !before.continues(after):
		return "an address or port that the Service of a UDP flow no longer has"
	case before.kind == "node port" && !p.random.serves(after.service, discoveryv1.AddressType(netns.FamilyOf(o.reached.Addr()).String())):
		return "a UDP flow through a node port of a Service without endpoints"
	case !sameClients(before.service.Spec, after.service.Spec):
		return "source ranges or a traffic policy may exclude the client of a UDP flow"
	}
	return ""
}

func sameClients(a, b corev1.ServiceSpec) bool {
	return *a.InternalTrafficPolicy == *b.InternalTrafficPolicy && a.ExternalTrafficPolicy == b.ExternalTrafficPolicy &&
		slices.Equal(a.LoadBalancerSourceRanges, b.LoadBalancerSourceRanges)
}

func closeAll(flows []flow) {
	for _, f := range flows {
		f.Close()
	}
}

// both calls a function for both labs at the same time.
func (p *pair) both(do func(lab int)) {
	var group sync.WaitGroup
	for i := range p.labs {
		group.Go(func() { do(i) })
	}
	group.Wait()
}

// parallel calls a function for some elements at a time.
func parallel[T any](all []T, do func(at int, one T)) {
	var group sync.WaitGroup
	defer group.Wait()
	slots := make(chan struct{}, 64)
	for at, one := range all {
		slots <- struct{}{}
		group.Go(func() { do(at, one); <-slots })
	}
}
