//go:build linux

package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// connections is how many are made for a line of the table: enough to see how they spread, and fewer where each is to
// come to nothing.
func connections(verdict netns.Verdict) int {
	if verdict == netns.Answered {
		return 100
	}
	return 20
}

// probe is the question in a family (0 is IPv4, 1 IPv6) as it is sent.
func (q question) probe(lab *netns.Lab, family int) netns.Probe {
	from, err := lab.Host(q.from)
	if err != nil {
		from = nil // the probe tells that it has nobody to be sent from
	}
	return netns.Probe{From: from, To: q.to[family], Protocol: q.protocol}
}

// ask goes through the table: asks, and prints what became of it.
func (d *demo) ask(ctx context.Context) error {
	d.line("")
	d.line("%s On each line %d connections; below each pod, how many it answered.",
		d.bold("The services of examples/."), connections(netns.Answered))
	d.line("")
	d.line("%s", d.faint(row{counts: d.pods(), seen: "saw them come from"}.String()))
	for _, service := range shop() {
		d.line("%s: %s", d.bold(service.name), service.about)
		for _, question := range service.questions {
			for family := range netns.Families() {
				if err := ctx.Err(); err != nil {
					return err
				}
				d.askOne(question, family)
			}
		}
	}
	return nil
}

// askOne asks a question in a family and prints a line, and another for each thing that is wrong with it.
func (d *demo) askOne(q question, family int) {
	tally := d.spread(q, family)
	line := row{to: q.to[family].String()}
	if family == 0 {
		line.from, line.way = q.from, string(q.protocol)+" "+q.way
	}
	if q.want.verdict == netns.Answered {
		for _, pod := range d.pods() {
			line.counts = append(line.counts, count(tally.Endpoints[pod]))
		}
		line.seen = d.seen(q.from, tally)
	} else {
		line.fate = fates(tally)
	}
	d.verdict(line.String(), d.judge(q, family, tally))
}

// spread asks a question in a family as many times as the table does.
func (d *demo) spread(q question, family int) netns.Tally {
	probe := q.probe(d.lab, family)
	if q.want.verdict != netns.Dropped {
		probe.Timeout = 3 * time.Second // a busy machine's TCP may have to send twice
	}
	tally := probe.Spread(connections(q.want.verdict))
	d.sent += tally.Sent
	return tally
}

// verdict prints a line, and what is wrong with it.
func (d *demo) verdict(line string, complaints []string) {
	if len(complaints) == 0 {
		d.line("%s", line)
		return
	}
	d.wrong++
	d.line("%s", d.bad(line))
	for _, complaint := range complaints {
		d.line("%s", d.bad("      WRONG: "+complaint))
	}
}

// seen tells which hosts the pods saw as the source.
func (d *demo) seen(from string, tally netns.Tally) string {
	var others, self []string
	for pair := range tally.Pairs {
		if pair.Endpoint == from {
			self = append(self, "itself as "+d.name(pair.Source))
		} else {
			others = append(others, d.name(pair.Source))
		}
	}
	slices.Sort(others)
	slices.Sort(self)
	return strings.Join(append(slices.Compact(others), slices.Compact(self)...), "; ")
}

// name is the host that has an address, or the address itself.
func (d *demo) name(address netip.Addr) string {
	if name, known := d.names[address]; known {
		return name
	}
	return address.String()
}

// fates tells what became of connections that were not answered.
func fates(tally netns.Tally) string {
	found := map[string]int{}
	for _, answer := range tally.Failures {
		found[fate(answer)]++
	}
	if answered := tally.Verdicts[netns.Answered]; answered > 0 {
		found["answered"] = answered
	}
	var parts []string
	for what, n := range found {
		if n == tally.Sent {
			return "all " + what
		}
		parts = append(parts, fmt.Sprintf("%d %s", n, what))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// fate tells what became of one connection.
func fate(answer netns.Answer) string {
	switch icmp := answer.ICMP; {
	case answer.Verdict == netns.Dropped:
		return fmt.Sprintf("dropped: not a word within %v", netns.DefaultTimeout)
	case icmp == (netns.ICMP{}):
		return answer.Verdict.String()
	case icmp.From.Is4() && icmp.Type == 3 && icmp.Code == 3, icmp.From.Is6() && icmp.Type == 1 && icmp.Code == 4:
		return fmt.Sprintf("%v: ICMP port unreachable", answer.Verdict)
	default:
		return fmt.Sprintf("%v: %v", answer.Verdict, icmp)
	}
}

// judge lists what is not as wanted; nothing, if all is well.
func (d *demo) judge(q question, family int, tally netns.Tally) (complaints []string) {
	complain := func(format string, args ...any) { complaints = append(complaints, fmt.Sprintf(format, args...)) }
	if n := tally.Verdicts[q.want.verdict]; n != tally.Sent {
		complain("%d of %d were %v; all should be", n, tally.Sent, q.want.verdict)
		if len(tally.Failures) > 0 {
			complain("for example: %v", tally.Failures[0])
		}
		return complaints
	}
	if q.want.verdict != netns.Answered {
		return unruly(q.want.verdict, tally)
	}
	for pod, n := range tally.Endpoints {
		if !slices.Contains(q.want.pods, pod) {
			complain("%s answered %d, and is none of the endpoints", pod, n)
		}
	}
	for _, pod := range q.want.pods {
		if n := tally.Endpoints[pod]; !fair(n, tally.Sent, len(q.want.pods)) {
			complain("%s answered %d; its fair share is %d", pod, n, tally.Sent/len(q.want.pods))
		}
	}
	for pair, n := range tally.Pairs {
		wanted := q.want.seenAs
		if pair.Endpoint == q.from {
			wanted = "node1"
		}
		if d.name(pair.Source) != wanted || netns.FamilyOf(pair.Source) != netns.Families()[family] {
			complain("%s saw %d come from %v; it should see %s", pair.Endpoint, n, pair.Source, wanted)
		}
	}
	for address, n := range tally.Reached {
		if address.Port() != q.want.port {
			complain("%d arrived at %v; the port should be %d", n, address, q.want.port)
		}
	}
	slices.Sort(complaints)
	return complaints
}

// unruly finds a refusal that is not the rules' own: a port where nobody listens refuses as well, by a TCP reset.
func unruly(wanted netns.Verdict, tally netns.Tally) []string {
	at := slices.IndexFunc(tally.Failures, func(a netns.Answer) bool {
		return wanted == netns.Refused && a.Verdict == netns.Refused && a.ICMP == netns.ICMP{}
	})
	if at < 0 {
		return nil
	}
	return []string{fmt.Sprintf("refused, but not by an ICMP error as the rules do: %v", tally.Failures[at])}
}
