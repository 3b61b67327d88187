package inspect

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/terminal"
)

// Ruleset shows rules as the tool of their mode loads them, each family after a comment with its name.
func (Printer) Ruleset(r *v1alpha1.Ruleset) string {
	var b strings.Builder
	for _, family := range r.Families {
		fmt.Fprintf(&b, "# %s\n%s", family.Family, lines("", family.Rules))
	}
	return b.String()
}

// Comparison shows differences: lines with + are missing in the kernel, lines with - are only there.
func (Printer) Comparison(c *v1alpha1.Comparison) string {
	var b strings.Builder
	for _, d := range c.Items {
		fmt.Fprintf(&b, "%s, %s\n%s%s%s", d.Family, terminal.Printable(d.Object), lines("  ", d.Note), lines("- ", d.Extra...), lines("+ ", d.Missing...))
	}
	if len(c.Items) == 0 {
		fmt.Fprintf(&b, "The kernel has the rules of mode %s that the plan makes.\n", terminal.Printable(c.Mode))
	}
	return b.String()
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

// Repairs shows what was repaired, the newest last.
func (p Printer) Repairs(r *v1alpha1.RepairList) string {
	if len(r.Items) == 0 {
		return "The proxy has repaired nothing since it started.\n"
	}
	t := &terminal.Table{Width: p.Width}
	t.Add("TIME", "FAMILY", "BY", "WHAT")
	for _, repair := range r.Items {
		what := repair.What
		if len(repair.Details) > 0 {
			what = strings.Join(repair.Details, "; ")
		}
		t.Add(repair.Time.Format(time.RFC3339), repair.Family, cmp.Or(repair.Writer, "-"), what)
	}
	return t.String()
}
