package page

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
)

// The size of a chart in its own units; the page stretches it. A column has a slot's width less the gap.
const (
	chartHeight = 100
	slotWidth   = 10
	gapWidth    = 2
	slots       = 60
	// minHeight keeps small values visible.
	minHeight = 1.5
)

// chart is a column chart of the last hour.
type chart struct {
	Title, Note string
	// Summary describes the chart to those who cannot see it.
	Summary string
	// Labels are those of the vertical axis, from the top; Grid is the path of their lines.
	Labels  []string
	Grid    string
	Columns []column
	Width   int
}

// column is the value of one minute.
type column struct {
	X, Y, Width, Height float64
	// Failed marks a minute in which a sync failed.
	Failed bool
	Title  string
}

// scale is a vertical axis.
type scale struct {
	// labels are evenly spaced, from the top.
	labels []string
	// part returns the height of a value, from 0 to 1.
	part func(v float64) float64
}

// linear returns a scale from 0 to at least a value.
func linear(most float64) scale {
	top := nice(most)
	return scale{[]string{whole(top), whole(top / 2), "0"}, func(v float64) float64 { return v / top }}
}

// decades returns a logarithmic scale of seconds: the first sync takes a hundred times as long as the others.
func decades(least, most float64) scale {
	if most == 0 {
		least, most = 1e-3, 1e-2
	}
	from, to := math.Floor(math.Log10(least)), math.Ceil(math.Log10(most))
	to = max(to, from+1)
	s := scale{part: func(v float64) float64 { return (math.Log10(v) - from) / (to - from) }}
	for power := to; power >= from; power-- {
		s.labels = append(s.labels, seconds(math.Pow(10, power)))
	}
	return s
}

// newChart draws a value of each minute; 0 is no column.
func newChart(minutes []v1alpha1.Minute, value func(v1alpha1.Minute) float64, on scale) chart {
	c := chart{Width: slots * slotWidth, Labels: on.labels}
	for i := range on.labels {
		c.Grid += fmt.Sprintf("M0 %vH%d", round(float64(i)*chartHeight/float64(len(on.labels)-1)), c.Width)
	}
	for i, m := range minutes {
		v := value(m)
		if v == 0 {
			continue
		}
		h := max(minHeight, round(on.part(v)*chartHeight))
		c.Columns = append(c.Columns, column{
			X: float64((slots-len(minutes)+i)*slotWidth) + gapWidth/2, Y: round(chartHeight - h), Width: slotWidth - gapWidth, Height: h,
			Failed: m.Failed > 0, Title: minuteText(m),
		})
	}
	return c
}

func round(v float64) float64 { return math.Round(v*10) / 10 }

// nice returns the smallest round number that is not less than v; 1 for 0.
func nice(v float64) float64 {
	if v <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, step := range []float64{1, 1.5, 2, 3, 4, 5, 6, 8} {
		if v <= step*power*(1+1e-9) {
			return step * power
		}
	}
	return 10 * power
}

// minuteText describes a minute.
func minuteText(m v1alpha1.Minute) string {
	text := fmt.Sprintf("%s  %s", m.Start.Format("15:04"), plural(m.Syncs, "sync"))
	if m.Syncs > 0 {
		text += ", slowest " + seconds(m.Slowest)
	}
	text += ", " + plural(m.Changes, "change")
	if m.Failed > 0 {
		text += fmt.Sprintf(", %d failed", m.Failed)
	}
	return text
}

// charts are the charts of the overview, with the same numbers as a table.
type charts struct {
	All []chart
	// Rows are the minutes with a sync, the newest first.
	Rows []v1alpha1.Minute
}

func newCharts(minutes []v1alpha1.Minute) charts {
	var total v1alpha1.Minute
	var rows []v1alpha1.Minute
	busiest, fastest := 0, math.Inf(1)
	for _, m := range minutes {
		total.Syncs += m.Syncs
		total.Failed += m.Failed
		total.Changes += m.Changes
		total.Slowest = max(total.Slowest, m.Slowest)
		busiest = max(busiest, m.Changes)
		if m.Syncs > 0 {
			fastest = min(fastest, m.Slowest)
			rows = append(rows, m)
		}
	}
	slices.Reverse(rows)
	durations := newChart(minutes, func(m v1alpha1.Minute) float64 { return m.Slowest }, decades(fastest, total.Slowest))
	durations.Title, durations.Note = "Slowest sync in each minute", plural(total.Syncs, "sync")
	if total.Failed > 0 {
		durations.Note += fmt.Sprintf(", %d failed", total.Failed)
	}
	durations.Summary = fmt.Sprintf("%s in %s; the slowest took %s.", durations.Note, plural(len(minutes), "minute"), seconds(total.Slowest))
	changes := newChart(minutes, func(m v1alpha1.Minute) float64 { return float64(m.Changes) }, linear(float64(busiest)))
	for i := range changes.Columns {
		changes.Columns[i].Failed = false // the changes did not fail
	}
	changes.Title, changes.Note = "Changed Services in each minute", plural(total.Changes, "change")
	changes.Summary = fmt.Sprintf("%s in %s; at most %d in one.", changes.Note, plural(len(minutes), "minute"), busiest)
	return charts{All: []chart{durations, changes}, Rows: rows}
}

// whole formats an integer; half a change is no label.
func whole(v float64) string {
	if v != math.Trunc(v) {
		return ""
	}
	return number(v)
}

// share is a horizontal bar in percent of its cell.
type share struct {
	Percent float64
	// Mean is where the mean of all bars is.
	Mean float64
}

// shares returns bars for values. The largest value is 100 %.
func shares(values []uint64) []share {
	top, sum := uint64(0), 0.0
	for _, v := range values {
		top, sum = max(top, v), sum+float64(v)
	}
	all := make([]share, len(values))
	if top == 0 {
		return all
	}
	for i, v := range values {
		all[i] = share{Percent: percent(float64(v), float64(top)), Mean: percent(sum/float64(len(values)), float64(top))}
	}
	return all
}

func percent(part, of float64) float64 { return round(part / of * 100) }

// seconds formats a duration in seconds. Its unit does not break off.
func seconds(s float64) string {
	switch d := time.Duration(s * float64(time.Second)); {
	case d <= 0:
		return "0"
	case d < time.Millisecond:
		return digits(s*1e6) + "\u00a0µs"
	case d < time.Second:
		return digits(s*1e3) + "\u00a0ms"
	default:
		return digits(s) + "\u00a0s"
	}
}

// digits formats a number with one decimal below 10, and without trailing zeros.
func digits(v float64) string {
	if v >= 10 {
		return number(math.Round(v))
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0")
}
