package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the tables of README.md and docs/scale.md from docs/bench.json")

const root = "../.."

// documented is a row of the tables of docs/scale.md.
type documented struct {
	name, figure string
	format       func(float64) string
}

// rows lists the documented figures, in the order of the tables. Columns for which neither program has a figure are empty, and so
// are rows without any figure.
func rows() []documented {
	return []documented{
		{"an endpoint is replaced, p50, ms", "endpoint change, p50", rounded},
		{"the slowest, ms", "endpoint change, max", rounded},
		{"CPU of that, ms", "endpoint change, CPU each", rounded},
		{"a new Service, p50, ms", "new service, p50", rounded},
		{"cold start, to the first answer from the last Service, s", "cold start", seconds},
		{"compared with the bare cost", "cold start, compared with bare cost", rounded},
		{"peak memory at a cold start, MB", "peak memory, cold start", rounded},
		{"restart with one change, s", "restart with one change", seconds},
		{"peak memory at a restart, MB", "peak memory, restart", rounded},
		{"connections lost in restarts", "restart, connections lost", whole},
		{"connect time, compared with a direct connection", "connect p50, compared with direct", hundredths},
		{"established, compared with one `dnat` rule: packets, UDP", "established UDP, packets, compared with a single dnat rule", hundredths},
		{"idle, CPU, % of a core", "idle, CPU", hundredths},
		{"500 Services replaced at once: delay, p50, ms", "update of 500 Services at once, p50", rounded},
		{"1,000 replaced endpoints a second: delay, p50, ms", "churn of 1000/s, delay, p50", rounded},
		{"the slowest, ms", "churn of 1000/s, delay, max", rounded},
		{"CPU of that, % of a core", "churn of 1000/s, CPU", rounded},
	}
}

// target is a wanted figure that is not reached: in one size, or in all if the size is empty. Figures of one kind share a target.
type target struct {
	name, mode, size  string
	figures           []string
	unit, wanted, why string
}

// targets lists the targets that are not reached.
func targets() []target {
	established := []string{
		"established UDP, packets, compared with a single dnat rule", "established TCP, packets, compared with a single dnat rule",
	}
	return []target{
		{"cold start, compared with the bare cost", "nftables", "", []string{"cold start, compared with bare cost"}, "", "1.5",
			"[0024](decisions/0024-a-start-is-one-pass.md): the processor time alone is 1.8 times, if it were spread evenly"},
		{"a new Service at 45,000 × 1", "nftables", "45000x1", []string{"new service, p50"}, " ms", "8 ms",
			"[0020](decisions/0020-a-new-service-costs-a-walk.md): the kernel walks the verdict map"},
		{"iptables: an endpoint is replaced at 10,000 × 2", "iptables", "10000x2", []string{"endpoint change, p50"}, " ms", "15 ms",
			"[0021](decisions/0021-known-rules-go-over-netlink.md): the kernel validates the whole table"},
		{"iptables: established", "iptables", "", established, "", "0.98",
			"[0023](decisions/0023-packets-meet-what-their-service-needs.md): each match of iptables costs more than a rule of nftables"},
		{"first packet, compared with a direct connection", "nftables", "", []string{"connect p50, compared with direct"}, "", "1.05",
			"[0023](decisions/0023-packets-meet-what-their-service-needs.md)"},
		{"iptables: the same", "iptables", "", []string{"connect p50, compared with direct"}, "", "1.05", "the same"},
	}
}

// rounded formats a number with two digits, and thousands with all of theirs.
func rounded(v float64) string {
	switch {
	case v < 1:
		return hundredths(v)
	case v < 9.95:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return whole(v)
}

func seconds(v float64) string { return rounded(v / 1000) }

func hundredths(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }

// whole formats an integer of at most six digits.
func whole(v float64) string {
	text := strconv.FormatFloat(v, 'f', 0, 64)
	if at := len(text) - 3; at > 0 {
		return text[:at] + "," + text[at:]
	}
	return text
}

// text formats one figure of a program in one mode with one cluster; - if there is none.
func (r *Report) text(program, mode, size string, row documented) string {
	for _, run := range r.Runs {
		if run.Program == program && run.Mode == mode && run.Size == size {
			if v, ok := run.value(row.figure); ok {
				return row.format(v)
			}
		}
	}
	return "-"
}

// programs returns this project's program and the one that it is compared with.
func (r *Report) programs(t *testing.T) (ours, peer string) {
	t.Helper()
	all := r.order(func(r *Run) string { return r.Program })
	if len(all) != 2 || r.Versions[all[1]] == "" {
		t.Fatalf("docs/bench.json has the programs %q with the versions %q, want two, and the second one's version: make bench PEER=1", all, r.Versions)
	}
	return all[0], all[1]
}

// sizesOf returns the sizes that were measured in a mode, and their names in a table.
func (r *Report) sizesOf(mode string) (sizes, names []string) {
	for _, run := range r.Runs {
		if run.Mode == mode && len(run.Figures) > 0 && !slices.Contains(sizes, run.Size) {
			services, each, _ := strings.Cut(run.Size, "x")
			n, _ := strconv.ParseFloat(services, 64)
			sizes, names = append(sizes, run.Size), append(names, whole(n)+" × "+each)
		}
	}
	return sizes, names
}

// table makes a mode's table of docs/scale.md.
func (r *Report) table(t *testing.T, mode string) string {
	ours, peer := r.programs(t)
	sizes, names := r.sizesOf(mode)
	var b strings.Builder
	fmt.Fprintf(&b, "| %s: ours; Kubernetes' | %s |\n|---|%s\n", mode, strings.Join(names, " | "), strings.Repeat("---|", len(names)))
	for _, row := range rows() {
		var cells []string
		for _, size := range sizes {
			cell := r.text(ours, mode, size, row) + "; " + r.text(peer, mode, size, row)
			cells = append(cells, strings.TrimPrefix(cell, "-; -"))
		}
		if strings.Join(cells, "") != "" {
			fmt.Fprintf(&b, "| %s | %s |\n", row.name, strings.Join(cells, " | "))
		}
	}
	return b.String()
}

// missed makes the table of the targets.
func (r *Report) missed(t *testing.T) string {
	ours, _ := r.programs(t)
	var b strings.Builder
	b.WriteString("| | wanted | reached | why |\n|---|---|---|---|\n")
	for _, want := range targets() {
		row := rows()[slices.IndexFunc(rows(), func(row documented) bool { return row.figure == want.figures[0] })]
		var values []float64
		for _, run := range r.Runs {
			if run.Program != ours || run.Mode != want.mode || want.size != "" && want.size != run.Size {
				continue
			}
			for _, figure := range want.figures {
				if v, ok := run.value(figure); ok {
					values = append(values, v)
				}
			}
		}
		if len(values) == 0 {
			t.Errorf("docs/bench.json has no %q of %s, %s", want.figures, want.mode, want.size)
			continue
		}
		reached := row.format(slices.Min(values))
		if most := row.format(slices.Max(values)); most != reached {
			reached += " to " + most
		}
		fmt.Fprintf(&b, "| %s | %s | %s%s | %s |\n", want.name, want.wanted, reached, want.unit, want.why)
	}
	return b.String()
}

// about describes the run.
func (r *Report) about(t *testing.T) string {
	_, peer := r.programs(t)
	day, _, _ := strings.Cut(r.Machine.Time, "T")
	release, _, _ := strings.Cut(r.Machine.Kernel, "-")
	return fmt.Sprintf("This proxy and Kubernetes' kube-proxy %s, alternately in one run of %s: %d cores, Linux %s.\n",
		strings.TrimPrefix(r.Versions[peer], "Kubernetes v"), day, r.Machine.Cores, release)
}

// front makes the table of README.md.
func (r *Report) front(t *testing.T) string {
	ours, peer := r.programs(t)
	at := func(program, mode, figure string) string {
		row := rows()[slices.IndexFunc(rows(), func(row documented) bool { return row.figure == figure })]
		text := r.text(program, mode, "10000x2", row)
		_, unit, _ := cutLast(row.name, ", ")
		if text == "-" {
			return text
		}
		return text + " " + unit
	}
	var b strings.Builder
	b.WriteString("| | this | Kubernetes' |\n|---|---|---|\n")
	for _, mode := range []string{"nftables", "iptables"} {
		for _, row := range []struct {
			name    string
			figures []string
		}{
			{"an endpoint is replaced; CPU", []string{"endpoint change, p50", "endpoint change, CPU each"}},
			{"a new Service", []string{"new service, p50"}},
			{"cold start; peak memory", []string{"cold start", "peak memory, cold start"}},
		} {
			fmt.Fprintf(&b, "| %s: %s |", mode, row.name)
			for _, program := range []string{ours, peer} {
				var cells []string
				for _, figure := range row.figures {
					cells = append(cells, at(program, mode, figure))
				}
				fmt.Fprintf(&b, " %s |", strings.Join(cells, "; "))
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

// cutLast slices a text around the last separator.
func cutLast(text, separator string) (before, after string, found bool) {
	at := strings.LastIndex(text, separator)
	if at < 0 {
		return text, "", false
	}
	return text[:at], text[at+len(separator):], true
}

// TestDocs checks that the tables between the markers of README.md and docs/scale.md are those of docs/bench.json.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/bench.json"))
	if err != nil {
		t.Fatal(err)
	}
	r := &Report{}
	if err := json.Unmarshal(text, r); err != nil {
		t.Fatal(err)
	}
	for _, section := range []struct{ page, name, want string }{
		{"README.md", "front", r.about(t) + "\n" + r.front(t)},
		{"docs/scale.md", "about", r.about(t)},
		{"docs/scale.md", "nftables", r.table(t, "nftables")},
		{"docs/scale.md", "iptables", r.table(t, "iptables")},
		{"docs/scale.md", "targets", r.missed(t)},
	} {
		file := filepath.Join(root, section.page)
		page, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		begin, end := "<!-- bench.json: "+section.name+" -->\n", "<!-- end -->"
		before, rest, found := strings.Cut(string(page), begin)
		got, after, ended := strings.Cut(rest, end)
		if !found || !ended {
			t.Errorf("%s has no section %q", section.page, begin)
			continue
		}
		want := "\n" + section.want + "\n"
		if *update {
			if err := os.WriteFile(file, []byte(before+begin+want+end+after), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s, %s: run make docs (-want +got):\n%s", section.page, section.name, diff)
		}
	}
}
