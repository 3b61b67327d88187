package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestQuantile checks that the quantile is the time that the given part of the times does not exceed.
func TestQuantile(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(100-i))
	}
	for _, c := range []struct {
		times []time.Duration
		part  float64
		want  time.Duration
	}{
		{nil, 0.5, 0}, {[]time.Duration{7}, 0.5, 7}, {[]time.Duration{7}, 1, 7}, {[]time.Duration{3, 1, 2}, 0.5, 2},
		{hundred, 0.5, 50}, {hundred, 0.99, 99}, {hundred, 1, 100}, {hundred[:50], 0.99, 100},
	} {
		if got := quantile(c.times, c.part); got != c.want {
			t.Errorf("quantile(%v, %v) = %d, want %d", c.times, c.part, got, c.want)
		}
	}
}

// TestSpread checks that the 99th percentile is given only where it is not the maximum.
func TestSpread(t *testing.T) {
	for _, c := range []struct {
		times []time.Duration
		want  []Figure
	}{
		{nil, nil},
		{make([]time.Duration, 99), []Figure{{"x, p50", "ms", 0, 99}, {"x, max", "ms", 0, 99}}},
		{append(make([]time.Duration, 99), time.Second), []Figure{{"x, p50", "ms", 0, 100}, {"x, p99", "ms", 0, 100}, {"x, max", "ms", 1000, 100}}},
	} {
		r := &Run{}
		if r.spread("x", "ms", c.times); !slices.Equal(r.Figures, c.want) {
			t.Errorf("%d times: %v, want %v", len(c.times), r.Figures, c.want)
		}
	}
}

// TestRatioOfRounds checks that a single disturbed round does not change the ratio, and that the error is estimated.
func TestRatioOfRounds(t *testing.T) {
	var one, other []time.Duration
	for round := range 9 {
		for range 3 {
			one, other = append(one, 1100), append(other, 1000)
		}
		one = append(one, time.Duration(5000*round)) // the slowest of a round is ignored
		other = append(other, 900)
	}
	if ratio, off := ratioOfRounds(one, other, 4); ratio != 1.1 || off != 0 {
		t.Errorf("the ratio of equal rounds is %v ± %v", ratio, off)
	}
	for i := range 4 {
		one[i] *= 7
	}
	if ratio, off := ratioOfRounds(one, other, 4); ratio != 1.1 || off != 0 {
		t.Errorf("with one round disturbed the ratio is %v ± %v", ratio, off)
	}
	for i := range 16 {
		one[i] = 1300
	}
	if ratio, off := ratioOfRounds(one, other, 4); ratio != 1.1 || off < 0.05 || off > 0.1 {
		t.Errorf("with four rounds of 1.3 the ratio is %v ± %v", ratio, off)
	}
}

// example is a report of two programs and two sizes, one of which a peer did not finish.
func example() *Report {
	run := func(program, size string, services, endpoints int, failed string, values ...float64) *Run {
		r := &Run{Program: program, Mode: "nftables", Size: size, Services: services, Endpoints: endpoints, Failed: failed, Amount: "a few changes"}
		for i, v := range values {
			r.add([]string{"cold start", "endpoint change, p50", "peak memory, cold start"}[i], []string{"ms", "ms", "MB"}[i], v)
		}
		return r
	}
	slow := run("b", "5000x50", 5000, 250000, "changes: too <slow>", 6700)
	slow.note("changes: only %d of 60, time limit reached", 7)
	return &Report{
		Machine: Machine{Time: "2026-11-21T12:00:00Z", Kernel: "6.18", Cores: 2, LoadBefore: "0.1", LoadAfter: "1.5"},
		Runs: []*Run{
			run("a", "5000x50", 5000, 250000, "", 1666, 1.48, 81.8), slow,
			run("a", "1000x2", 1000, 2000, "", 163, 1.43, 39.8), run("b", "1000x2", 1000, 2000, "", 700, 111, 83),
		},
	}
}

// TestTable checks the tables of two programs and of two modes, of which one has fewer figures.
func TestTable(t *testing.T) {
	var b strings.Builder
	r := example()
	other := &Run{Program: "a", Mode: "iptables", Size: "1000x2", Amount: "fewer changes"}
	other.add("endpoint change, p50", "ms", 7)
	r.Runs = append(r.Runs, other)
	if err := r.write(&b); err != nil {
		t.Fatal(err)
	}
	want := `2026-11-21T12:00:00Z, 2 cores, Linux 6.18, load before: 0.1, after: 1.5
ours: a
peer: b

nftables: a few changes
                               5000x50 ours  5000x50 peer  ratio  1000x2 ours  1000x2 peer  ratio
               cold start  ms          1666          6700   4.02          163          700   4.29
     endpoint change, p50  ms          1.48             -      -         1.43          111   77.6
  peak memory, cold start  MB          81.8             -      -         39.8         83.0   2.09

iptables: fewer changes
                            1000x2 ours
  endpoint change, p50  ms         7.00
b nftables 5000x50: changes: only 7 of 60, time limit reached
b nftables 5000x50 ended early: changes: too <slow>
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// element is an element of a drawing.
type element struct {
	name  string
	attrs map[string]string
}

// drawn draws a report and returns the elements.
func drawn(t *testing.T, r *Report) (all []element) {
	t.Helper()
	var b strings.Builder
	if err := r.draw(&b); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "NaN") || strings.Contains(b.String(), "Inf") {
		t.Error("a coordinate is not a number")
	}
	for decoder := xml.NewDecoder(strings.NewReader(b.String())); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if start, ok := token.(xml.StartElement); ok {
			e := element{name: start.Name.Local, attrs: map[string]string{}}
			for _, attr := range start.Attr {
				e.attrs[attr.Name.Local] = attr.Value
			}
			all = append(all, e)
		}
		if text, ok := token.(xml.CharData); ok && len(all) > 0 {
			all[len(all)-1].attrs["content"] += strings.TrimSpace(string(text))
		}
	}
}

// TestDrawing checks that the drawing is well-formed, and has a point for every figure.
func TestDrawing(t *testing.T) {
	points := 0
	var sizes []string
	for _, e := range drawn(t, example()) {
		if e.name == "circle" {
			points++
		}
		if content := e.attrs["content"]; content == "1000x2" || content == "5000x50" {
			sizes = append(sizes, content)
		}
	}
	if points != 10 {
		t.Errorf("%d points, want 10", points)
	}
	if len(sizes) == 0 || sizes[0] != "1000x2" {
		t.Errorf("the sizes are drawn in the order %q", sizes)
	}
	drawn(t, &Report{})
}

// TestLegend checks that every line of a large comparison has a place in the legend and looks different from the others.
func TestLegend(t *testing.T) {
	r := &Report{}
	for _, program := range []string{"a", "b", "c"} {
		for _, mode := range []string{"nftables", "iptables"} {
			run := &Run{Program: program, Mode: mode, Size: "1000x2"}
			for _, p := range panels() {
				for _, figure := range p.figures {
					run.add(figure, p.unit, 1)
				}
			}
			r.Runs = append(r.Runs, run)
		}
	}
	all := drawn(t, r)
	number := func(text string) float64 {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Error(err)
		}
		return v
	}
	var panel int
	var lowest float64
	looks := map[string]bool{}
	for _, e := range all {
		switch {
		case e.name == "g":
			panel++
		case e.name == "polyline":
			look := fmt.Sprint(panel, e.attrs["stroke"], e.attrs["stroke-dasharray"])
			if looks[look] {
				t.Errorf("two lines of panel %d look alike: %s", panel, look)
			}
			looks[look] = true
		case e.name == "text" && panel > 0:
			lowest = max(lowest, number(e.attrs["y"]))
		}
	}
	height, machine := number(all[0].attrs["height"]), number(all[2].attrs["y"])
	if lowest >= machine || machine >= height {
		t.Errorf("the legend ends at %v, the line about the machine is at %v, the height is %v", lowest, machine, height)
	}
	if len(looks) != 6*8 {
		t.Errorf("%d lines, want 48", len(looks))
	}
}
