package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Report contains all results.
type Report struct {
	Machine Machine `json:"machine"`
	// Versions are what the programs print with --version.
	Versions map[string]string `json:"versions,omitempty"`
	Runs     []*Run            `json:"runs"`
}

// Machine describes the machine and its load.
type Machine struct {
	Time   string `json:"time"`
	Kernel string `json:"kernel"`
	Cores  int    `json:"cores"`
	// LoadBefore and LoadAfter are /proc/loadavg.
	LoadBefore string `json:"loadBefore"`
	LoadAfter  string `json:"loadAfter"`
}

// String returns one line.
func (m Machine) String() string {
	return fmt.Sprintf("%s, %d cores, Linux %s, load before: %s, after: %s", m.Time, m.Cores, m.Kernel, m.LoadBefore, m.LoadAfter)
}

// columns returns the runs in the order of a table: by mode, size and program.
func (r *Report) columns() []*Run {
	programs, modes := r.order(func(r *Run) string { return r.Program }), r.order(func(r *Run) string { return r.Mode })
	sizes := r.order(func(r *Run) string { return r.Size })
	sorted := slices.Clone(r.Runs)
	slices.SortStableFunc(sorted, func(a, b *Run) int {
		for _, by := range [][2]int{
			{slices.Index(modes, a.Mode), slices.Index(modes, b.Mode)},
			{slices.Index(sizes, a.Size), slices.Index(sizes, b.Size)},
			{slices.Index(programs, a.Program), slices.Index(programs, b.Program)},
		} {
			if by[0] != by[1] {
				return by[0] - by[1]
			}
		}
		return 0
	})
	return sorted
}

// order lists the distinct values of the runs in the order of their first appearance.
func (r *Report) order(of func(*Run) string) (all []string) {
	for _, run := range r.Runs {
		if !slices.Contains(all, of(run)) {
			all = append(all, of(run))
		}
	}
	return all
}

// names lists the figures of runs, in an order that agrees with the order in each run.
func names(runs []*Run) (all []Figure) {
	for _, run := range runs {
		at := 0
		for _, f := range run.Figures {
			found := slices.IndexFunc(all, func(o Figure) bool { return o.Name == f.Name })
			if found < 0 {
				all = slices.Insert(all, at, f)
				found = at
			}
			at = found + 1
		}
	}
	return all
}

// write prints a table for each mode: a row for each figure, a column for each run and, for a peer, one for the ratio to
// the first program.
func (r *Report) write(to io.Writer) error {
	fmt.Fprintln(to, r.Machine)
	columns, programs := r.columns(), r.order(func(r *Run) string { return r.Program })
	for i, program := range programs {
		fmt.Fprintf(to, "%s: %s\n", label(i), program)
	}
	for _, mode := range r.order(func(r *Run) string { return r.Mode }) {
		fmt.Fprintf(to, "\n%s: %s\n", mode, r.amount(mode))
		table := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
		var head strings.Builder
		var shown []*Run
		for _, run := range columns {
			if run.Mode == mode {
				shown = append(shown, run)
				fmt.Fprintf(&head, "%s %s\t", run.Size, label(slices.Index(programs, run.Program)))
				if run.Program != programs[0] {
					head.WriteString("ratio\t")
				}
			}
		}
		fmt.Fprintf(table, "\t\t%s\n", head.String())
		for _, f := range names(shown) {
			fmt.Fprintf(table, "%s\t%s\t", f.Name, f.Unit)
			var base float64
			for _, run := range shown {
				value, ok := run.value(f.Name)
				fmt.Fprintf(table, "%s\t", number(value, ok))
				if run.Program == programs[0] {
					base = value
				} else {
					fmt.Fprintf(table, "%s\t", number(value/base, ok && base > 0))
				}
			}
			fmt.Fprintln(table)
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	for _, run := range columns {
		for _, note := range run.Notes {
			fmt.Fprintf(to, "%s %s %s: %s\n", run.Program, run.Mode, run.Size, note)
		}
		if run.Failed != "" {
			fmt.Fprintf(to, "%s %s %s ended early: %s\n", run.Program, run.Mode, run.Size, run.Failed)
		}
	}
	return nil
}

// amount returns the planned amount of measurements for a mode.
func (r *Report) amount(mode string) string {
	return r.Runs[slices.IndexFunc(r.Runs, func(r *Run) bool { return r.Mode == mode })].Amount
}

// label returns a program's name in the head of a table: the first one is this project's.
func label(program int) string {
	if program == 0 {
		return "ours"
	}
	return fmt.Sprint("peer", strings.Repeat("'", program-1))
}

// number formats a number with about three digits.
func number(v float64, ok bool) string {
	switch {
	case !ok:
		return "-"
	case v == 0:
		return "0"
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}
