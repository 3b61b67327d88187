package metrics

import (
	"sync"

	"k8s.io/component-base/metrics"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// problems exposes the number of Services that have a problem, by its reason.
type problems struct {
	gauge    *metrics.GaugeVec
	observed func() plan.Observed

	mu sync.Mutex
	// of holds the reasons that the plan shows of each Service that has any, and counts their sums.
	of     map[cluster.ServiceName]map[string]bool
	counts map[string]int
}

func newProblems(r *registry, config *Config) *problems {
	c := &problems{
		gauge: r.gauges(own, "services_with_problems",
			"Services to which connections fail on this node, by the reasons that \"kube-proxy service list\" shows.", reasonLabel),
		observed: config.Observed, of: map[cluster.ServiceName]map[string]bool{}, counts: map[string]int{},
	}
	r.onScrape(c.read, c.gauge)
	return c
}

// synced counts again what changed.
func (c *problems) synced(s *proxy.Sync) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.Shown == nil {
		return
	}
	for name := range s.Shown.Affected() {
		count(c.counts, c.of[name], -1)
		delete(c.of, name)
		if found := s.Plan.Problems(name, nil); len(found) > 0 {
			c.of[name] = plan.Reasons(found)
			count(c.counts, c.of[name], +1)
		}
	}
}

// read adds what was observed.
func (c *problems) read() {
	c.mu.Lock()
	defer c.mu.Unlock()
	observed := map[string]int{}
	if c.observed != nil {
		for _, found := range c.observed() {
			count(observed, plan.Reasons(found), +1)
		}
	}
	for _, reason := range plan.ProblemReasons() {
		c.gauge.WithLabelValues(reason).Set(float64(c.counts[reason] + observed[reason]))
	}
}

// count adds n to the count of each reason.
func count(counts map[string]int, reasons map[string]bool, n int) {
	for reason := range reasons {
		counts[reason] += n
	}
}
