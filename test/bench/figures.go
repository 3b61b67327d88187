package main

import (
	"fmt"
	"slices"
	"time"
)

// Figure is one thing measured.
type Figure struct {
	// Name is the same in every run.
	Name  string  `json:"name"`
	Unit  string  `json:"unit"`
	Value float64 `json:"value"`
	// Count is of how many measurements it is made; 0 is one.
	Count int `json:"count,omitempty"`
}

// Run is what was measured of one program in one mode with one cluster.
type Run struct {
	Program string `json:"program"`
	Mode    string `json:"mode"`
	Size    string `json:"size"`
	// Services and Endpoints are the cluster's, all in all.
	Services  int `json:"services"`
	Endpoints int `json:"endpoints"`
	// Amount is how much of the mode was to be measured.
	Amount  string   `json:"amount"`
	Figures []Figure `json:"figures"`
	// Notes tell what was left out or cut short.
	Notes []string `json:"notes,omitempty"`
	// Failed tells why it ended early, if it did.
	Failed string `json:"failed,omitempty"`
}

// note tells of something that was not measured as it should have been.
func (r *Run) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// add notes a figure.
func (r *Run) add(name, unit string, value float64) {
	r.Figures = append(r.Figures, Figure{Name: name, Unit: unit, Value: value})
}

// spread notes the median, the 99th percentile and the largest of some times.
func (r *Run) spread(name, unit string, times []time.Duration) {
	for _, of := range []struct {
		name  string
		value time.Duration
	}{{"p50", quantile(times, 0.50)}, {"p99", quantile(times, 0.99)}, {"max", quantile(times, 1)}} {
		value := milliseconds(of.value)
		if unit == "µs" {
			value *= 1000
		}
		r.Figures = append(r.Figures, Figure{Name: name + ", " + of.name, Unit: unit, Value: value, Count: len(times)})
	}
}

// value finds a figure.
func (r *Run) value(name string) (float64, bool) {
	at := slices.IndexFunc(r.Figures, func(f Figure) bool { return f.Name == name })
	if at < 0 {
		return 0, false
	}
	return r.Figures[at].Value, true
}

// quantile is the smallest of the times that at least the given part of them does not exceed; 0 of none.
func quantile(times []time.Duration, part float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	at := int(part*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(at, 0), len(sorted)-1)]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// megabytes are 10⁶ bytes.
func megabytes(bytes int64) float64 { return float64(bytes) / 1e6 }
