package view

import (
	"fmt"
	"math"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
)

// The size of a chart in its own units, which page.html stretches: a slot for each minute, and in it a bar of 8.
const (
	chartHeight = 100
	slotWidth   = 10
	slots       = 60
	// minHeight keeps small values visible.
	minHeight = 1.5
)

// chart is a column chart of the last hour. Summary describes it to those who cannot see it.
type chart struct {
	Title, Note, Summary string
	// Labels are those of the vertical axis, from the top; Grid is the path of their lines.
	Labels []string
	Grid   string
	Bars   []bar
}

// bar is the value of one minute, in which a sync may have failed.
type bar struct {
	X, Y, Height float64
	Failed       bool
	Title        string
}

// scale is a vertical axis with evenly spaced labels, from the top. part returns the height of a value, from 0 to 1.
type scale struct {
	labels []string
	part   func(v float64) float64
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
func newChart(minutes []v1alpha1.Minute, value func(v1alpha1.Minute) (v float64, failed bool), on scale) chart {
	c := chart{Labels: on.labels}
	for i := range on.labels {
		c.Grid += fmt.Sprintf("M0 %vH%d", round(float64(i)*chartHeight/float64(len(on.labels)-1)), slots*slotWidth)
	}
	for i, m := range minutes {
		v, failed := value(m)
		if v == 0 {
			continue
		}
		h := max(minHeight, round(on.part(v)*chartHeight))
		c.Bars = append(c.Bars, bar{X: float64((slots-len(minutes)+i)*slotWidth) + 1, Y: round(chartHeight - h), Height: h, Failed: failed, Title: minuteText(m)})
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
	text := m.Start.Format("15:04") + "  " + plural(m.Syncs, "sync")
	if m.Syncs > 0 {
		text += ", slowest " + seconds(m.Slowest)
	}
	return text + ", " + plural(m.Changes, "change") + failures(m)
}

// failures names the failed syncs, if there are any.
func failures(m v1alpha1.Minute) string {
	if m.Failed == 0 {
		return ""
	}
	return fmt.Sprintf(", %d failed", m.Failed)
}

// total sums up minutes; Slowest is that of all.
func total(minutes []v1alpha1.Minute) (sum v1alpha1.Minute) {
	for _, m := range minutes {
		sum.Syncs += m.Syncs
		sum.Failed += m.Failed
		sum.Changes += m.Changes
		sum.Slowest = max(sum.Slowest, m.Slowest)
	}
	return sum
}

// busy returns the minutes with a sync, the newest first.
func busy(minutes []v1alpha1.Minute) (found []v1alpha1.Minute) {
	for _, m := range slices.Backward(minutes) {
		if m.Syncs > 0 {
			found = append(found, m)
		}
	}
	return found
}

// charts are the charts of the overview.
func charts(minutes []v1alpha1.Minute) []chart {
	sum, fastest, most := total(minutes), math.Inf(1), 0
	for _, m := range busy(minutes) {
		fastest, most = min(fastest, m.Slowest), max(most, m.Changes)
	}
	durations := newChart(minutes, func(m v1alpha1.Minute) (float64, bool) { return m.Slowest, m.Failed > 0 }, decades(fastest, sum.Slowest))
	durations.Title, durations.Note = "Slowest sync in each minute", plural(sum.Syncs, "sync")+failures(sum)
	durations.Summary = fmt.Sprintf("%s in %s; the slowest took %s.", durations.Note, plural(len(minutes), "minute"), seconds(sum.Slowest))
	changes := newChart(minutes, func(m v1alpha1.Minute) (float64, bool) { return float64(m.Changes), false }, linear(float64(most)))
	changes.Title, changes.Note = "Changed Services in each minute", plural(sum.Changes, "change")
	changes.Summary = fmt.Sprintf("%s in %s; at most %d in one.", changes.Note, plural(len(minutes), "minute"), most)
	return []chart{durations, changes}
}

// whole formats an integer; half a change is no label.
func whole(v float64) string {
	if v != math.Trunc(v) {
		return ""
	}
	return number(v)
}

// spread compares the connections of endpoints.
type spread struct {
	endpoints        int
	least, most, sum uint64
}

func spreadOf(used []uint64) spread {
	s := spread{endpoints: len(used)}
	if len(used) > 0 {
		s.least, s.most = slices.Min(used), slices.Max(used)
	}
	for _, n := range used {
		s.sum += n
	}
	return s
}

func (s spread) mean() float64 { return float64(s.sum) / float64(s.endpoints) }

// share is a horizontal bar in percent of its cell. Mean is where the mean of all bars is.
type share struct{ Percent, Mean float64 }

// share returns the bar of n connections. The largest number is 100 %.
func (s spread) share(n uint64) *share {
	percent := func(part float64) float64 { return round(part / float64(max(1, s.most)) * 100) }
	return &share{percent(float64(n)), percent(s.mean())}
}

// String describes the spread over several endpoints; "" if there is none.
func (s spread) String() string {
	if s.endpoints < 2 || s.sum == 0 {
		return ""
	}
	percent := func(n uint64) float64 { return float64(n) / s.mean() * 100 }
	return fmt.Sprintf("%s share %s; each has %.0f to %.0f %% of the average, which is %s",
		plural(s.endpoints, "endpoint"), plural(int(s.sum), "connection"), percent(s.least), percent(s.most), digits(s.mean()))
}
