package inspect

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/terminal"
)

// PrintRuleset prints rules as the tool of their mode loads them, each family after a comment with its name.
func PrintRuleset(out io.Writer, r *v1alpha1.Ruleset) error {
	for _, family := range r.Families {
		if _, err := fmt.Fprintf(out, "# %s\n%s", family.Family, lines("", family.Rules)); err != nil {
			return err
		}
	}
	return nil
}

// PrintComparison prints differences: lines with + are missing in the kernel, lines with - are only there.
func PrintComparison(out io.Writer, c *v1alpha1.Comparison) error {
	var b strings.Builder
	for _, d := range c.Items {
		fmt.Fprintf(&b, "%s, %s\n%s%s%s", d.Family, terminal.Printable(d.Object), lines("  ", d.Note), lines("- ", d.Extra...), lines("+ ", d.Missing...))
	}
	if len(c.Items) == 0 {
		fmt.Fprintf(&b, "The kernel has the rules of mode %s that the plan makes.\n", terminal.Printable(c.Mode))
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// lines begins each line of the texts with a prefix, and replaces what could change a terminal's state.
func lines(prefix string, texts ...string) string {
	var b strings.Builder
	for _, text := range texts {
		for line := range strings.Lines(text) {
			indented := strings.TrimLeft(line, "\t")
			b.WriteString(prefix + line[:len(line)-len(indented)] + terminal.Printable(strings.TrimSuffix(indented, "\n")) + "\n")
		}
	}
	return b.String()
}

// PrintRepairs prints what was repaired, the newest last.
func (p Printer) PrintRepairs(out io.Writer, r *v1alpha1.RepairList) error {
	if len(r.Items) == 0 {
		_, err := fmt.Fprintln(out, "No other program has changed the rules since the proxy started.")
		return err
	}
	t := &table{width: p.Width}
	t.add("TIME", "FAMILY", "BY", "WHAT")
	for _, repair := range r.Items {
		writer := repair.Writer
		if writer == "" {
			writer = "-"
		}
		what := repair.What
		if len(repair.Details) > 0 {
			what = strings.Join(repair.Details, "; ")
		}
		t.add(repair.Time.Format(time.RFC3339), repair.Family, terminal.Printable(writer), terminal.Printable(what))
	}
	return t.print(out)
}
