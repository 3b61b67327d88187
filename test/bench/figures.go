package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/bench/synthetic"
)

// Figure is one result.
type Figure struct {
	// Name is the same in every run.
	Name  string  `json:"name"`
	Unit  string  `json:"unit"`
	Value float64 `json:"value"`
	// Count is the number of measurements behind the value; 0 means one.
	Count int `json:"count,omitempty"`
}

// Run contains the results of one program in one mode with one cluster.
type Run struct {
	Program string `json:"program"`
	Mode    string `json:"mode"`
	Size    string `json:"size"`
	// Services and Endpoints are the totals of the cluster.
	Services  int `json:"services"`
	Endpoints int `json:"endpoints"`
	// Amount is the planned amount of measurements for the mode.
	Amount  string   `json:"amount"`
	Figures []Figure `json:"figures"`
	// Notes list what was skipped or shortened.
	Notes []string `json:"notes,omitempty"`
	// Failed is the error that ended the run early, if any.
	Failed string `json:"failed,omitempty"`
}

// newRun returns a run without results.
func newRun(program, mode string, size synthetic.Size) *Run {
	return &Run{Program: program, Mode: mode, Size: size.String(), Services: size.Services, Endpoints: size.Total()}
}

// note adds a note.
func (r *Run) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// add adds a figure.
func (r *Run) add(name, unit string, value float64) {
	r.Figures = append(r.Figures, Figure{Name: name, Unit: unit, Value: value})
}

// spread adds the median, the 99th percentile and the maximum of times. The 99th percentile of fewer than a hundred times would
// be their maximum under another name.
func (r *Run) spread(name, unit string, times []time.Duration) {
	for _, of := range []struct {
		name string
		part float64
		from int
	}{{"p50", 0.50, 1}, {"p99", 0.99, 100}, {"max", 1, 1}} {
		if len(times) < of.from {
			continue
		}
		value := milliseconds(quantile(times, of.part))
		if unit == "µs" {
			value *= 1000
		}
		r.Figures = append(r.Figures, Figure{Name: name + ", " + of.name, Unit: unit, Value: value, Count: len(times)})
	}
}

// value returns the value of a figure by name.
func (r *Run) value(name string) (float64, bool) {
	at := slices.IndexFunc(r.Figures, func(f Figure) bool { return f.Name == name })
	if at < 0 {
		return 0, false
	}
	return r.Figures[at].Value, true
}

// quantile returns the smallest of the values v such that at least the given part of them is at most v; 0 if there are none.
func quantile[V cmp.Ordered](values []V, part float64) (v V) {
	if len(values) == 0 {
		return v
	}
	sorted := slices.Sorted(slices.Values(values))
	at := int(part*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(at, 0), len(sorted)-1)]
}

// ratioOfRounds compares two series that were measured alternately, in rounds of the given size.
func ratioOfRounds(a, b []time.Duration, each int) (ratio, uncertainty float64) {
	var ratios []float64
	for at := 0; at < min(len(a), len(b)); at += each {
		one, other := quantile(a[at:min(at+each, len(a))], 0.5), quantile(b[at:min(at+each, len(b))], 0.5)
		ratios = append(ratios, float64(one)/float64(other))
	}
	deviation := (quantile(ratios, 0.75) - quantile(ratios, 0.25)) / 1.35
	return quantile(ratios, 0.5), 1.25 * deviation / math.Sqrt(float64(len(ratios)))
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// megabytes are 10⁶ bytes.
func megabytes(bytes int64) float64 { return float64(bytes) / 1e6 }
