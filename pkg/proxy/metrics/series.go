package metrics

import (
	"slices"
	"strconv"
	"sync/atomic"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/component-base/metrics"
)

// seriesOf holds tens of thousands of series of one counter, by keys. A scrape takes half of the time that it takes with
// a [prometheus.CounterVec]: labels are made once, and the series are in the order that the registry sorts them to.
//
// One goroutine uses it at a time, except for Collect. A nil seriesOf has no series to sort.
type seriesOf[K comparable] struct {
	*metrics.CounterVec
	// shown reports whether there are numbers; nil if there always are.
	shown func() bool
	// names are the names of the labels, sorted.
	names []string
	all   map[K]*series
	// sorted holds all. It is outdated while stale.
	sorted atomic.Pointer[[]*series]
	stale  bool
}

func newSeries[K comparable](name, help string, labels ...string) *seriesOf[K] {
	s := &seriesOf[K]{CounterVec: newCounters(own, name, help, labels...), names: labels, all: map[K]*series{}}
	s.sorted.Store(new([]*series))
	return s
}

// series is one of them. It exists while it has holders.
type series struct {
	holders int
	values  []string
	labels  []*dto.LabelPair
	total   atomic.Uint64
}

// hold adds to the number of a series' holders. It creates the series with these label values for its first holder, and
// deletes it without one.
func (s *seriesOf[K]) hold(key K, n int, values func() []string) {
	of := s.all[key]
	if of == nil {
		of = &series{values: values()}
		for i, value := range of.values {
			if !utf8.ValidString(value) { // Prometheus refuses it; no API server accepts such a name
				of.values[i] = strconv.Quote(value)
			}
			of.labels = append(of.labels, &dto.LabelPair{Name: &s.names[i], Value: &of.values[i]})
		}
		s.all[key], s.stale = of, true
	}
	if of.holders += n; of.holders == 0 {
		delete(s.all, key)
		s.stale = true
	}
}

func (s *seriesOf[K]) has(key K) bool { return s.all[key] != nil }

// add adds to a series, if it exists.
func (s *seriesOf[K]) add(key K, n uint64) {
	if of := s.all[key]; of != nil {
		of.total.Add(n)
	}
}

// sort shows what was created and deleted to Collect.
func (s *seriesOf[K]) sort() {
	if s == nil || !s.stale {
		return
	}
	sorted := make([]*series, 0, len(s.all))
	for _, of := range s.all {
		sorted = append(sorted, of)
	}
	slices.SortFunc(sorted, func(a, b *series) int { return slices.Compare(a.values, b.values) })
	s.sorted.Store(&sorted)
	s.stale = false
}

// Collect sends all series. It is safe for concurrent use.
func (s *seriesOf[K]) Collect(to chan<- prometheus.Metric) {
	if s.shown != nil && !s.shown() {
		return
	}
	described := make(chan *prometheus.Desc, 1)
	s.Describe(described)
	desc := <-described
	for _, of := range *s.sorted.Load() {
		to <- sample{of, desc}
	}
}

// sample is the value of a series.
type sample struct {
	*series
	desc *prometheus.Desc
}

// Desc is part of [prometheus.Metric].
func (s sample) Desc() *prometheus.Desc { return s.desc }

// Write is part of [prometheus.Metric].
func (s sample) Write(out *dto.Metric) error {
	value := float64(s.total.Load())
	out.Label, out.Counter = s.labels, &dto.Counter{Value: &value}
	return nil
}
