package fleet

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/status"
	"github.com/seed-11a05479/kube-proxy/pkg/terminal"
)

// Print prints a report: a line for each node, disagreements, and sums.
func (r *Report) Print(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "NODE\tVERSION\tMODE\tHEALTH\tSYNCED\tSERVICES\tDRIFTS\tSTATUS")
	for _, n := range r.Nodes {
		row := []string{n.Name, cmp.Or(n.Version, "-"), cmp.Or(n.Mode, "-"), cmp.Or(n.Health, "-"), ago(r.Time, n.Synced), fmt.Sprint(n.Services), fmt.Sprint(n.Drifts), n.text()}
		for i := range row {
			row[i] = terminal.Printable(row[i])
		}
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, d := range r.Disagreements {
		fmt.Fprintf(out, "\n%s: %s (%s) differ from %s:\n", terminal.Printable(d.Service), terminal.Count(len(d.Nodes), "node"), terminal.Printable(strings.Join(d.Nodes, ", ")), terminal.Printable(d.Than))
		for _, difference := range d.Differences {
			fmt.Fprintf(out, "  %s %s\n", terminal.Printable(d.Nodes[0]), terminal.Printable(difference))
		}
	}
	for _, note := range r.Notes {
		fmt.Fprintf(out, "\nNote: %s\n", terminal.Printable(note))
	}
	for _, worse := range r.Worse {
		fmt.Fprintf(out, "\n%s is worse than before:\n", terminal.Printable(worse.Node))
		for _, reason := range worse.Reasons {
			fmt.Fprintf(out, "  %s\n", terminal.Printable(reason))
		}
	}
	_, err := fmt.Fprintf(out, "\n%s\n", r.sum())
	return err
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
