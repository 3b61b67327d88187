package canary

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/logonce"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

const (
	// period is the time between two connections of a family.
	period = time.Second
	// firstPatience is how long one may take, and Patience the next one if it fails: what is broken is named within two seconds.
	firstPatience = 300 * time.Millisecond
	Patience      = 500 * time.Millisecond
	// traceAgain is how often the cause is looked for again while it lasts.
	traceAgain = 10 * time.Second
	// restShare is the pause after a check of all chains, as a multiple of its duration, from one period to longestRest: in iptables mode
	// there are tens of thousands.
	restShare   = 2000
	longestRest = time.Minute
	// calm is the least time between two log lines, or Events, about one check.
	calm = 30 * time.Second
)

// The groups of checks that Config.Check makes: kernel settings, of all packet filters the chains that drop everything, and of the
// connection tracking table how full it is, which only matters if connections fail.
const (
	Settings = "settings"
	Firewall = "firewall"
	Tracking = "kernel"
)

// Config configures a Canary.
type Config struct {
	// Families are those that the backend serves, Node is the name of this node.
	Families []cluster.Family
	Node     string
	// Trace calls connect, which connects to these routes, and returns why the connections fail.
	Trace func(ctx context.Context, routes []*plan.Route, connect func()) (map[cluster.Family]string, error)
	// Check returns what is wrong for one of the groups.
	Check    func(ctx context.Context, group string) []string
	Recorder proxy.Recorder
	// Broken is called after each try with whether a check fails: a family's connections, Settings or Firewall. It must not block.
	Broken func(check string, broken bool)
}

// Canary is an Observer that tries the rules.
type Canary struct {
	proxy.Ignore
	config    Config
	listeners listeners
	known     map[string]*logonce.Condition
	untried   map[cluster.Family]*logonce.Condition
	// traced are the failing connections by family; firewall is the result of the last check of the chains, and due when the next one is.
	traced   map[cluster.Family]*failure
	firewall string
	due      time.Time

	mu sync.Mutex
	// routes are those in force, problems what was found broken last, by check.
	routes   map[cluster.Family]*plan.Route
	problems map[string]string
}

var _ proxy.Observer = (*Canary)(nil)

// failure is why the connections of a family fail.
type failure struct {
	// how is the error of the connection, why the cause, known since at.
	how, why string
	at       time.Time
}

// New returns a Canary that listens. Run tries the rules, once a plan with its routes is in force.
func New(config Config) (*Canary, error) {
	c := &Canary{
		config: config, known: map[string]*logonce.Condition{}, untried: map[cluster.Family]*logonce.Condition{}, traced: map[cluster.Family]*failure{},
		routes: map[cluster.Family]*plan.Route{},
	}
	for _, check := range c.checks() {
		c.known[check] = &logonce.Condition{Again: logonce.Reminder, Calm: calm}
	}
	for _, family := range config.Families {
		c.untried[family] = &logonce.Condition{}
	}
	var err error
	c.listeners, err = listen(config.Families)
	return c, err
}

// checks are the names of all checks.
func (c *Canary) checks() (all []string) {
	for _, family := range c.config.Families {
		all = append(all, family.String())
	}
	return append(all, Settings, Firewall)
}

// Problems returns what was found broken last. It is safe for concurrent use, and for a Canary that is nil.
func (c *Canary) Problems() (all []string) {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, check := range c.checks() {
		if problem := c.problems[check]; problem != "" {
			all = append(all, problem)
		}
	}
	return all
}

// Synced implements [proxy.Observer].
func (c *Canary) Synced(s *proxy.Sync) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, family := range s.InForce() {
		c.routes[family] = nil
		for _, route := range s.Plan.Canary {
			if route.Frontend.Family() == family {
				c.routes[family] = route
			}
		}
	}
}

// Run tries the rules until ctx ends.
func (c *Canary) Run(ctx context.Context) error {
	defer c.listeners.close()
	c.listeners.serve()
	next := time.NewTicker(period)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-next.C:
			if found, tried := c.try(ctx); tried && ctx.Err() == nil {
				c.report(ctx, found)
			}
		}
	}
}

// try makes all checks once, and returns what is broken, by check; tried is false before the first sync.
func (c *Canary) try(ctx context.Context) (found map[string]string, tried bool) {
	routes := c.inForce()
	if routes == nil {
		return nil, false
	}
	found = map[string]string{}
	for family, why := range c.connections(ctx, routes) {
		found[family.String()] = why
	}
	found[Settings] = strings.Join(c.config.Check(ctx, Settings), "; ")
	if began := time.Now(); !began.Before(c.due) {
		c.firewall = strings.Join(c.config.Check(ctx, Firewall), "; ")
		c.due = time.Now().Add(min(restShare*time.Since(began), longestRest))
	}
	found[Firewall] = c.firewall
	return found, true
}

// inForce returns the routes that can be tried; nil before the first sync.
func (c *Canary) inForce() map[cluster.Family]*plan.Route {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.routes) == 0 {
		return nil
	}
	tried := map[cluster.Family]*plan.Route{}
	for family, route := range c.routes {
		if route != nil {
			tried[family] = route
		}
	}
	return tried
}

// connections tries the routes, and returns why connections fail.
func (c *Canary) connections(ctx context.Context, routes map[cluster.Family]*plan.Route) map[cluster.Family]string {
	failed := c.connect(ctx, routes, firstPatience)
	c.leaveUntried(ctx, routes, failed)
	traced := c.traced
	c.traced = map[cluster.Family]*failure{}
	unknown := map[cluster.Family]*plan.Route{}
	for family, err := range failed {
		switch before := traced[family]; {
		case before == nil || before.how != how(err) || time.Since(before.at) >= traceAgain:
			unknown[family] = routes[family]
		default:
			c.traced[family] = before
		}
	}
	c.trace(ctx, unknown)
	found := map[cluster.Family]string{}
	for family, f := range c.traced {
		found[family] = fmt.Sprintf("%s connections through kube-proxy's rules fail (%s: %s): %s", family, address(routes[family]), f.how, f.why)
	}
	return found
}

// leaveUntried removes the failures of families whose rules cannot be tried, and logs once why.
func (c *Canary) leaveUntried(ctx context.Context, routes map[cluster.Family]*plan.Route, failed map[cluster.Family]error) {
	for _, family := range c.config.Families {
		route, why := routes[family], ""
		if route == nil {
			why = "no ServiceCIDR of this family is known, or a Service has its first address"
		} else if failed[family] != nil {
			if err := unrouted(route); err != nil {
				why = fmt.Sprintf("this node has no route to cluster IPs, so that no packet of its own meets the rules (%s: %s)", route.Frontend.Addr, how(err))
				delete(failed, family)
			}
		}
		if why == "" {
			c.untried[family].Ended()
		} else if c.untried[family].Changed(why) {
			klog.FromContext(ctx).Info("The canary cannot try the rules of a family", "family", family, "reason", why)
		}
	}
}

// trace connects once more to routes whose connections fail, and notes why they do. What succeeds now was slow, and is not broken.
func (c *Canary) trace(ctx context.Context, unknown map[cluster.Family]*plan.Route) {
	if len(unknown) == 0 {
		return
	}
	var routes []*plan.Route
	for _, route := range unknown {
		routes = append(routes, route)
	}
	var failed map[cluster.Family]error
	causes, err := c.config.Trace(ctx, routes, func() { failed = c.connect(ctx, unknown, Patience) })
	for family, failing := range failed {
		why := causes[family]
		switch {
		case why != "":
		case err != nil:
			why = "its packets could not be traced: " + err.Error()
		default:
			why = "no packet of it was seen"
		}
		why = strings.Join(append([]string{why}, c.config.Check(ctx, Tracking)...), "; ")
		c.traced[family] = &failure{how(failing), why, time.Now()}
	}
}

// report publishes what was found, by check.
func (c *Canary) report(ctx context.Context, found map[string]string) {
	c.mu.Lock()
	c.problems = found
	c.mu.Unlock()
	for _, check := range c.checks() {
		problem := found[check]
		c.config.Broken(check, problem != "")
		switch known := c.known[check]; {
		case problem != "" && known.Changed(problem):
			klog.FromContext(ctx).Error(nil, "The node does not serve Services as it should", "check", check, "problem", problem)
			c.event(true, "DataplaneBroken", problem)
		case problem == "" && known.Ended():
			klog.FromContext(ctx).Info("The node serves Services again", "check", check)
			c.event(false, "DataplaneWorks", "The check "+check+" succeeds again")
		}
	}
}

func (c *Canary) event(warning bool, reason, message string) {
	c.config.Recorder.Event(proxy.Event{Kind: "Node", Name: c.config.Node, Warning: warning, Reason: reason, Action: "TryRules", Message: message})
}
