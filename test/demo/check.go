//go:build linux

package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// connections returns the number of connections for a line of the table: enough to check the distribution, and fewer if
// no answer is expected.
func connections(verdict netns.Verdict) int {
	if verdict == netns.Answered {
		return 100
	}
	return 20
}

// probe returns the probe of a check in a family (0 is IPv4, 1 IPv6).
func (q check) probe(lab *netns.Lab, family int) netns.Probe {
	from, err := lab.Host(q.from)
	if err != nil {
		from = nil // sending the probe then returns an error
	}
	return netns.Probe{From: from, To: q.to[family], Protocol: q.protocol}
}

// runChecks runs all checks of the table and prints the results.
func (d *demo) runChecks(ctx context.Context) error {
	d.line("")
	d.line("%s Each line is up to %d connections; the columns show how many each pod answered.",
		d.bold("The Services of examples/."), connections(netns.Answered))
	d.line("")
	d.line("%s", d.faint(row{counts: d.pods(), seen: "source address"}.String()))
	for _, service := range shop() {
		d.line("%s: %s", d.bold(service.name), service.about)
		for _, check := range service.checks {
			for family := range netns.Families() {
				if err := ctx.Err(); err != nil {
					return err
				}
				d.runCheck(check, family)
			}
		}
	}
	return nil
}

// runCheck runs a check in a family and prints a line, and another line for each error.
func (d *demo) runCheck(q check, family int) {
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
		line.outcome = outcomes(tally)
	}
	d.verdict(line.String(), d.judge(q, family, tally))
}

// spread makes the connections of a check in a family.
func (d *demo) spread(q check, family int) netns.Tally {
	probe := q.probe(d.lab, family)
	if q.want.verdict != netns.Dropped {
		probe.Timeout = d.timeout
	}
	tally := probe.Spread(connections(q.want.verdict))
	d.sent += tally.Sent
	return tally
}

// verdict prints a line and its errors.
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

// seen returns the hosts that the pods saw as the source.
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

// name returns the host that has an address, or the address itself.
func (d *demo) name(address netip.Addr) string {
	if name, known := d.names[address]; known {
		return name
	}
	return address.String()
}

// outcomes sums up the outcomes of connections, such as "all dropped: timed out after 400ms".
func outcomes(tally netns.Tally) string {
	found := map[string]int{}
	for _, answer := range tally.Failures {
		found[outcome(answer)]++
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

// outcome describes the outcome of one connection that was not answered.
func outcome(answer netns.Answer) string {
	switch icmp := answer.ICMP; {
	case answer.Verdict == netns.Dropped:
		return fmt.Sprintf("dropped: timed out after %v", netns.DefaultTimeout)
	case icmp == (netns.ICMP{}):
		return answer.Verdict.String()
	case icmp.From.Is4() && icmp.Type == 3 && icmp.Code == 3, icmp.From.Is6() && icmp.Type == 1 && icmp.Code == 4:
		return fmt.Sprintf("%v: ICMP port unreachable", answer.Verdict)
	default:
		return fmt.Sprintf("%v: %v", answer.Verdict, icmp)
	}
}

// judge compares a tally with the expected result and returns the differences.
func (d *demo) judge(q check, family int, tally netns.Tally) (complaints []string) {
	complain := func(format string, args ...any) { complaints = append(complaints, fmt.Sprintf(format, args...)) }
	if n := tally.Verdicts[q.want.verdict]; n != tally.Sent {
		complain("%d of %d connections were %v; want all", n, tally.Sent, q.want.verdict)
		if len(tally.Failures) > 0 {
			complain("for example: %v", tally.Failures[0])
		}
		return complaints
	}
	if q.want.verdict != netns.Answered {
		return wrongRefusals(q.want.verdict, tally)
	}
	for pod, n := range tally.Endpoints {
		if !slices.Contains(q.want.pods, pod) {
			complain("%s answered %d connections, but is not an endpoint", pod, n)
		}
	}
	for _, pod := range q.want.pods {
		if n := tally.Endpoints[pod]; !fair(n, tally.Sent, len(q.want.pods)) {
			complain("%s answered %d connections; want about %d", pod, n, tally.Sent/len(q.want.pods))
		}
	}
	for pair, n := range tally.Pairs {
		wanted := q.want.seenAs
		if pair.Endpoint == q.from {
			wanted = "node1"
		}
		if d.name(pair.Source) != wanted || netns.FamilyOf(pair.Source) != netns.Families()[family] {
			complain("%s saw %d connections from %v; want %s", pair.Endpoint, n, pair.Source, wanted)
		}
	}
	for address, n := range tally.Reached {
		if address.Port() != q.want.port {
			complain("%d connections arrived at %v; want port %d", n, address, q.want.port)
		}
	}
	slices.Sort(complaints)
	return complaints
}

// wrongRefusals reports connections that were not refused by the rules: a port without a listener refuses them too, with a TCP
// reset.
func wrongRefusals(wanted netns.Verdict, tally netns.Tally) []string {
	at := slices.IndexFunc(tally.Failures, func(a netns.Answer) bool {
		return wanted == netns.Refused && a.Verdict == netns.Refused && a.ICMP == netns.ICMP{}
	})
	if at < 0 {
		return nil
	}
	return []string{fmt.Sprintf("refused, but not with an ICMP error of the rules: %v", tally.Failures[at])}
}
