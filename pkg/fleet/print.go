package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/status"
	"github.com/seed-11a05479/kube-proxy/pkg/terminal"
)

// Text shows a report: a line for each node, disagreements, and sums.
func (r *Report) Text() string {
	t := &terminal.Table{}
	t.Add("NODE", "VERSION", "MODE", "HEALTH", "SYNCED", "SERVICES", "DRIFTS", "STATUS")
	for _, n := range r.Nodes {
		services, drifts := "-", "-"
		if n.State == Serving || n.State == Failing { // others are not asked for them
			services, drifts = fmt.Sprint(n.Services), fmt.Sprint(n.Drifts)
		}
		t.Add(n.Name, cmp.Or(n.Version, "-"), cmp.Or(n.Mode, "-"), cmp.Or(n.Health, "-"), ago(r.Time, n.Synced), services, drifts, n.text())
	}
	var b strings.Builder
	b.WriteString(t.String())
	line := func(format string, args ...any) {
		b.WriteString(terminal.Printable(fmt.Sprintf(format, args...)) + "\n")
	}
	for _, d := range r.Disagreements {
		b.WriteByte('\n')
		line("%s differs on %s (%s) from %s:", d.Service, terminal.Count(len(d.Nodes), "node"), strings.Join(d.Nodes, ", "), d.Than)
		for _, difference := range d.Differences {
			line("  %s %s", d.Nodes[0], difference)
		}
	}
	for _, note := range r.Notes {
		b.WriteByte('\n')
		line("Note: %s", note)
	}
	for _, worse := range r.Worse {
		b.WriteByte('\n')
		line("%s is worse than before:", worse.Node)
		for _, reason := range worse.Reasons {
			line("  %s", reason)
		}
	}
	return b.String() + "\n" + r.sum() + "\n"
}

// text is what a row ends with.
func (n *Node) text() string {
	if n.Fine() {
		return "OK"
	}
	text := strings.Join(strings.Fields(strings.Join(n.Messages, "; ")), " ")
	if n.State == Serving {
		return text
	}
	return fmt.Sprintf("%s: %s", n.State, text)
}

func ago(now time.Time, at *time.Time) string {
	if at == nil {
		return "-"
	}
	return status.Ago(now, *at)
}

// sum counts nodes by state.
func (r *Report) sum() string {
	states := map[State]int{}
	fine := 0
	for _, n := range r.Nodes {
		if states[n.State]++; n.Fine() {
			fine++
		}
	}
	delete(states, Serving)
	counts := []string{fmt.Sprintf("%d OK", fine)}
	for _, state := range slices.Sorted(maps.Keys(states)) {
		counts = append(counts, fmt.Sprintf("%d %s", states[state], state))
	}
	text := terminal.Count(len(r.Nodes), "node") + ": " + strings.Join(counts, ", ")
	if len(r.Disagreements) > 0 {
		text += "; they disagree about " + terminal.Count(len(r.Disagreements), "Service")
	}
	if r.Before != nil {
		text += fmt.Sprintf("; worse than at %s: %d", r.Before.Format(time.RFC3339), len(r.Worse))
	}
	return text + "."
}
