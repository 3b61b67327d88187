package health

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Config is what a Checker is made of.
type Config struct {
	// Families are those that the backend serves. The proxy is healthy if each of them is.
	Families []cluster.Family
	// SyncPeriod is the time in which a change should be programmed. A family with a change that has waited more
	// than twice as long is unhealthy.
	SyncPeriod time.Duration
	// Waiting returns the names of what the proxy waits for, for /healthz to show; nil returns none.
	Waiting func() []string
	// Clock is a fake in tests.
	Clock clock.PassiveClock
	// HealthzAnswered and LivezAnswered, if set, are called with the code of every answer.
	HealthzAnswered, LivezAnswered func(code int)
}

// Checker reports whether the proxy keeps up with the cluster. It is a proxy.SyncObserver and a proxy.QueueObserver.
// Its other methods are safe for concurrent use.
type Checker struct {
	config Config

	mu       sync.Mutex
	families map[cluster.Family]*family
	// draining is Node.Draining of the last snapshot.
	draining bool
}

// family is the state of one address family.
type family struct {
	// updated is when a sync last succeeded; zero before the first.
	updated time.Time
	// waiting is since when the oldest change waits to be programmed; zero if none does.
	waiting time.Time
}

var (
	_ proxy.SyncObserver  = (*Checker)(nil)
	_ proxy.QueueObserver = (*Checker)(nil)
)

// NewChecker makes a Checker that has not seen a sync yet: /livez is 200 and /healthz is 503.
func NewChecker(config Config) *Checker {
	c := &Checker{config: config, families: map[cluster.Family]*family{}}
	for _, f := range config.Families {
		c.families[f] = &family{}
	}
	return c
}

// Queued notes that a change waits to be programmed since then, unless an older one does.
func (c *Checker) Queued(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.families {
		f.waitSince(at)
	}
}

// Synced notes which families are up to date. One that failed waits since its first attempt, even if no change was
// queued.
func (c *Checker) Synced(s *proxy.Sync) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.draining = s.After.Node.Draining
	for _, result := range s.Results {
		f := c.families[result.Family]
		switch {
		case f == nil:
		case result.Err != nil:
			f.waitSince(s.Started)
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

// Healthy reports whether every family has been programmed at least once and keeps up. It does not consider whether the
// node is draining.
func (c *Checker) Healthy() bool { return c.report(true).Healthy }

// report is the body of an answer.
type report struct {
	// LastUpdated is now when healthy: once it was when the loop last ran, changes or not, and there are
	// readers who conclude from an old one that the proxy hangs.
	LastUpdated time.Time `json:"lastUpdated"`
	CurrentTime time.Time `json:"currentTime"`
	// NodeEligible is told by healthz only.
	NodeEligible *bool                   `json:"nodeEligible,omitempty"`
	Healthy      bool                    `json:"healthy"`
	Status       map[string]familyReport `json:"status"`
	// WaitingFor is shown by healthz only. A proxy that has synced is healthy all the same: it serves what does not
	// depend on these.
	WaitingFor []string `json:"waitingFor,omitempty"`
}

// familyReport is the state of one family. LastUpdated is when it was last programmed, null if it never was.
type familyReport struct {
	LastUpdated *time.Time `json:"lastUpdated"`
	Healthy     bool       `json:"healthy"`
}

// report looks at all families at once. To be ready, each has to have been programmed. Without that, a start
// that takes long is healthy as long as nothing is tried in vain: what it waits for (its node's object, the
// lists of the API server) comes no sooner when the process is killed, and the rules that it found in the
// kernel stay in force meanwhile.
func (c *Checker) report(ready bool) report {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.config.Clock.Now()
	r := report{CurrentTime: now, Healthy: true, Status: map[string]familyReport{}}
	oldest := now
	for name, f := range c.families {
		status := familyReport{Healthy: f.waiting.IsZero() || now.Sub(f.waiting) <= 2*c.config.SyncPeriod}
		if updated := f.updated; !updated.IsZero() {
			status.LastUpdated = &updated
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
// /healthz is for load balancers. It also fails before the first successful sync, since the node may not be
// able to pass connections on, and while the node drains. /livez is for whoever would restart the process,
// which helps in neither case.
func (c *Checker) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		r, eligible := c.report(true), c.eligible()
		r.NodeEligible = &eligible
		if c.config.Waiting != nil {
			r.WaitingFor = c.config.Waiting()
		}
		r.Healthy = r.Healthy && eligible
		answer(w, r.Healthy, r, c.config.HealthzAnswered)
	})
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) {
		r := c.report(false)
		answer(w, r.Healthy, r, c.config.LivezAnswered)
	})
	return mux
}

func (c *Checker) eligible() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.draining
}
