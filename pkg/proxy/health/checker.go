package health

import (
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Config configures a Checker.
type Config struct {
	// Families are the families that the backend serves. The proxy is healthy if all of them are.
	Families []cluster.Family
	// SyncPeriod is the time in which a change should be programmed. A family is unhealthy if a change has been pending
	// for more than twice as long.
	SyncPeriod time.Duration
	// Waiting returns the names of the resources that the proxy still waits for; /healthz lists them. It may be nil.
	Waiting func() []string
	// Broken returns why the node does not serve Services although its rules are written; then the proxy is not healthy, but /livez does
	// not fail. It may be nil.
	Broken func() []string
	Clock  clock.PassiveClock
	// HealthzAnswered and LivezAnswered are called with the status code of every response. They may be nil.
	HealthzAnswered, LivezAnswered func(code int)
}

// Checker reports whether the proxy keeps up with the cluster. It is a proxy.Observer.
// Its other methods are safe for concurrent use.
type Checker struct {
	proxy.Ignore
	config Config

	mu       sync.Mutex
	families map[cluster.Family]*family
	// draining is Node.Draining of the last snapshot, delayed the number of delayed Services.
	draining bool
	delayed  int
}

// maxError bounds what /healthz shows of an error, in bytes.
const maxError = 500

// family is the state of one address family.
type family struct {
	// updated is the time of the last successful sync; zero before the first.
	updated time.Time
	// waiting is the time of the oldest change that is not programmed yet; zero if there is none.
	waiting time.Time
	// err is why the last sync failed; empty if it succeeded.
	err string
}

var _ proxy.Observer = (*Checker)(nil)

// NewChecker returns a Checker that has not seen a sync yet: /livez is 200 and /healthz is 503.
func NewChecker(config Config) *Checker {
	c := &Checker{config: config, families: map[cluster.Family]*family{}}
	for _, f := range config.Families {
		c.families[f] = &family{}
	}
	return c
}

// Queued records the time of a change that is not programmed yet.
func (c *Checker) Queued(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.families {
		f.waitSince(at)
	}
}

// Drifted records that a family waits for its repair.
func (c *Checker) Drifted(d backend.Drift) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.families[d.Family]; f != nil {
		f.waitSince(c.config.Clock.Now())
	}
}

// Synced records which families are up to date. A failed family counts as waiting since its first failed attempt, even
// if no change was queued.
func (c *Checker) Synced(s *proxy.Sync) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.draining, c.delayed = s.After.Node.Draining, len(s.Delayed)
	for _, result := range s.Results {
		f := c.families[result.Family]
		switch {
		case f == nil:
		case result.Err != nil:
			f.waitSince(s.Started)
			f.err = result.Err.Error()
			f.err = strings.ToValidUTF8(f.err[:min(len(f.err), maxError)], "")
		default:
			*f = family{updated: s.Finished}
		}
	}
}

func (f *family) waitSince(at time.Time) {
	if f.waiting.IsZero() {
		f.waiting = at
	}
}

// Healthy reports whether every family has been programmed at least once and has no overdue change, and nothing is broken. Draining does not
// matter.
func (c *Checker) Healthy() bool { return c.report(true).Healthy }

// report is the body of a response.
type report struct {
	// LastUpdated is the current time if the proxy is healthy: clients expect that the field advances even if nothing
	// changes.
	LastUpdated time.Time `json:"lastUpdated"`
	CurrentTime time.Time `json:"currentTime"`
	// NodeEligible is set only for /healthz.
	NodeEligible *bool                   `json:"nodeEligible,omitempty"`
	Healthy      bool                    `json:"healthy"`
	Status       map[string]familyReport `json:"status"`
	// WaitingFor is set only for /healthz. It does not make the proxy unhealthy.
	WaitingFor []string `json:"waitingFor,omitempty"`
	// DelayedServices is how many Services have a change that is delayed so that it does not delay others. It does not make the proxy
	// unhealthy.
	DelayedServices int `json:"delayedServices,omitempty"`
	// Broken is why the node does not serve Services although its rules are written. It is never set for /livez.
	Broken []string `json:"broken,omitempty"`
}

// familyReport is the state of one family. LastUpdated is the time of its last successful sync, null before the first.
type familyReport struct {
	LastUpdated *time.Time `json:"lastUpdated"`
	Healthy     bool       `json:"healthy"`
	// Error is why the last sync failed.
	Error string `json:"error,omitempty"`
}

// report returns the state of all families. If ready is true, a family that was never programmed is unhealthy.
// Otherwise it is healthy unless a sync is overdue: a restart would not make the API server answer sooner, and the
// rules from before the start remain in force.
func (c *Checker) report(ready bool) report {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.config.Clock.Now()
	r := report{CurrentTime: now, Healthy: true, Status: map[string]familyReport{}, DelayedServices: c.delayed}
	if ready {
		r.NodeEligible = new(!c.draining)
	}
	if ready && c.config.Broken != nil {
		r.Broken = c.config.Broken()
		r.Healthy = len(r.Broken) == 0
	}
	oldest := now
	for name, f := range c.families {
		status := familyReport{Error: f.err, Healthy: f.waiting.IsZero() || now.Sub(f.waiting)/2 <= c.config.SyncPeriod}
		if !f.updated.IsZero() {
			status.LastUpdated = new(f.updated)
		} else if ready {
			status.Healthy = false
		}
		if f.updated.Before(oldest) {
			oldest = f.updated
		}
		r.Status[name.String()] = status
		r.Healthy = r.Healthy && status.Healthy
	}
	r.LastUpdated = now
	if !r.Healthy {
		r.LastUpdated = oldest
	}
	return r
}

// Handler serves /healthz and /livez: 200 or 503, with the reason as JSON.
//
// /healthz is for load balancers: it also fails before the first successful sync, while the node drains, and if something is broken. /livez is
// for the kubelet: it does not fail in these cases, because a restart would not help.
func (c *Checker) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		r := c.report(true)
		if c.config.Waiting != nil {
			r.WaitingFor = c.config.Waiting()
		}
		r.Healthy = r.Healthy && *r.NodeEligible
		answer(w, r.Healthy, r, c.config.HealthzAnswered)
	})
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) {
		r := c.report(false)
		answer(w, r.Healthy, r, c.config.LivezAnswered)
	})
	return mux
}
