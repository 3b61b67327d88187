package view

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
)

// TestScales checks axes and heights: linear from 0 to a round number, logarithmic between powers of ten.
func TestScales(t *testing.T) {
	for _, test := range []struct {
		name  string
		scale scale
		want  string
	}{
		{"nothing", linear(0), "1||0 0.00"},
		{"seven", linear(7), "8|4|0 0.88"},
		{"many", linear(1234), "1,500|750|0 0.82"},
		{"syncs", decades(0.002, 0.2), "1 s|100 ms|10 ms|1 ms 0.77"},
		{"equal", decades(0.01, 0.01), "100 ms|10 ms 0.00"},
		{"no sync", decades(1, 0), "10 ms|1 ms -0.00"},
	} {
		most := map[string]float64{"seven": 7, "many": 1234, "syncs": 0.2, "equal": 0.01, "no sync": 0.001}[test.name]
		got := strings.ReplaceAll(fmt.Sprintf("%s %.2f", strings.Join(test.scale.labels, "|"), test.scale.part(most)), "\u00a0", " ")
		if strings.Replace(got, "-0.00", "0.00", 1) != strings.Replace(test.want, "-0.00", "0.00", 1) {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

// TestCharts draws three minutes at the right edge: a sync, a failed one, and none.
func TestCharts(t *testing.T) {
	start := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	minutes := []v1alpha1.Minute{
		{Start: start, Syncs: 2, Seconds: 0.03, Slowest: 0.02, Changes: 4},
		{Start: start.Add(time.Minute), Syncs: 1, Failed: 1, Seconds: 0.001, Slowest: 0.001},
		{Start: start.Add(2 * time.Minute)},
	}
	c, rows := charts(minutes), busy(minutes)
	want := []bar{
		{X: 571, Y: 34.9, Height: 65.1, Title: "08:00  2 syncs, slowest 20\u00a0ms, 4 changes"},
		{X: 581, Y: 98.5, Height: 1.5, Failed: true, Title: "08:01  1 sync, slowest 1\u00a0ms, 0 changes, 1 failed"},
	}
	if diff := cmp.Diff(want, c[0].Bars); diff != "" {
		t.Errorf("the columns differ (-want +got):\n%s", diff)
	}
	if len(c[1].Bars) != 1 || c[1].Bars[0].Height != 100 {
		t.Errorf("the changes are %+v", c[1].Bars)
	}
	if len(rows) != 2 || rows[0].Failed != 1 {
		t.Errorf("the rows are %+v", rows)
	}
}

// TestSpread compares the connections of endpoints.
func TestSpread(t *testing.T) {
	if got := spreadOf([]uint64{90, 100, 110}).String(); got != "3 endpoints share 300 connections; each has 90 to 110 % of the average, which is 100" {
		t.Error(got)
	}
	for _, used := range [][]uint64{nil, {5}, {0, 0}} {
		if got := spreadOf(used).String(); got != "" {
			t.Errorf("%v: %s", used, got)
		}
	}
	s := spreadOf([]uint64{10, 20})
	if diff := cmp.Diff([]*share{{Percent: 50, Mean: 75}, {Percent: 100, Mean: 75}}, []*share{s.share(10), s.share(20)}); diff != "" {
		t.Errorf("the bars differ (-want +got):\n%s", diff)
	}
}

// TestNumbers formats numbers and durations.
func TestNumbers(t *testing.T) {
	for got, want := range map[string]string{
		number(0): "0", number(999): "999", number(1000): "1,000", number(1234567): "1,234,567", number(0.25): "0.2",
		seconds(0): "0", seconds(0.0000021): "2.1 µs", seconds(0.012): "12 ms", seconds(0.0999): "100 ms", seconds(1.5): "1.5 s", seconds(75): "75 s",
		perSecond(0.04): "0.0", perSecond(99.94): "99.9", perSecond(12345.6): "12,346",
		plural(1, "sync"): "1 sync", plural(2000, "sync"): "2,000 syncs",
	} {
		if got = strings.ReplaceAll(got, "\u00a0", " "); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
