package check

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/logonce"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// CanaryLevel is whether the rules are tried, and who gets to know the result. It is a flag's value.
type CanaryLevel string

// The rules are not tried; the result is reported; and it also makes /healthz fail.
const (
	NoCanary      CanaryLevel = "none"
	CanaryReports CanaryLevel = "report"
	CanaryHealthz CanaryLevel = "healthz"
)

const (
	// period is the time between two connections of a family.
	period = time.Second
	// firstPatience is how long one may take, and secondPatience the next one if it fails: what is broken is named within two seconds.
	firstPatience  = 300 * time.Millisecond
	secondPatience = 500 * time.Millisecond
	// traceAgain is how often the cause is looked for again while it lasts.
	traceAgain = 10 * time.Second
	// restShare is the pause after a check, as a multiple of its processor time, from shortestRest, which is over before the next period but
	// one, to longestRest: in iptables mode there may be tens of thousands of chains.
	restShare    = 4000
	shortestRest = period + period/2
	longestRest  = time.Minute
	// calm is the least time between two log lines, or Events, about one check.
	calm = 30 * time.Second
)

// The groups of checks that a Canary makes: kernel settings, and the chains of all packet filters that drop everything; if connections
// fail, also how full the connection tracking table is, and whether the proxy has rules.
const (
	Settings = "settings"
	Firewall = "firewall"
	Tracking = "kernel"
	Rules    = "proxy"
)

// CanaryConfig configures a Canary.
type CanaryConfig struct {
	// Families are those that the backend serves, Node is the name of this node.
	Families []cluster.Family
	Node     string
	// Caller makes the connections; Run closes it. Unrouted returns why the kernel sends nothing to an address; nil if it does.
	Caller   Caller
	Unrouted func(to netip.AddrPort) error
	// Causes calls connect, which connects to these addresses, each with one endpoint, and returns until ctx ends why each fails; "" if no
	// packet was seen.
	Causes func(ctx context.Context, to, endpoints []netip.AddrPort, connect func()) ([]string, error)
	// Check returns what is wrong for one of the groups: Checker.Failed. Measure measures the processor time that it uses, of the calling thread.
	Check    func(ctx context.Context, group string) []string
	Measure  func(ctx context.Context) (_ context.Context, spent func() time.Duration)
	Recorder proxy.Recorder
	// Broken is called at first, and after each change, with whether a check fails: a family's connections, Settings or Firewall. It must
	// not block.
	Broken func(check string, broken bool)
}

// Caller connects to itself: selfcall.Listeners.
type Caller interface {
	// Call connects to addresses, and returns an error for each; ETIMEDOUT if there is no answer in time.
	Call(to []netip.AddrPort, patience time.Duration) []error
	Close()
}

// Canary is an Observer that tries the rules: once a second it connects, in each family, to a cluster IP that no Service has
// (plan.Options.Canary) and whose endpoint it is itself. If that fails twice, it asks for a trace of the second connection, which says why.
// Between that it makes checks of what it cannot try, because only packets that the node forwards meet it.
type Canary struct {
	proxy.Ignore
	config  CanaryConfig
	known   map[string]*logonce.Condition
	untried map[cluster.Family]*logonce.Condition
	// traced are the failing connections by family, checked the results of the last check of each group, and due is when the next one is.
	traced  map[cluster.Family]*failure
	checked map[string]string
	due     map[string]time.Time

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

// NewCanary returns a Canary. Run tries the rules, once a plan with its routes is in force.
func NewCanary(config CanaryConfig) *Canary {
	c := &Canary{
		config: config, known: map[string]*logonce.Condition{}, untried: map[cluster.Family]*logonce.Condition{}, traced: map[cluster.Family]*failure{},
		checked: map[string]string{}, due: map[string]time.Time{}, routes: map[cluster.Family]*plan.Route{},
	}
	for _, check := range c.checks() {
		c.known[check] = &logonce.Condition{Again: logonce.Reminder, Calm: calm}
	}
	for _, family := range config.Families {
		c.untried[family] = &logonce.Condition{}
	}
	return c
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
	defer c.config.Caller.Close()
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
	for _, group := range []string{Settings, Firewall} {
		if !time.Now().Before(c.due[group]) {
			c.check(ctx, group)
		}
		found[group] = c.checked[group]
	}
	return found, true
}

// check checks a group.
func (c *Canary) check(ctx context.Context, group string) {
	runtime.LockOSThread() // Measure measures the thread
	defer runtime.UnlockOSThread()
	ctx, spent := c.config.Measure(ctx)
	c.checked[group] = strings.Join(c.config.Check(ctx, group), "; ")
	c.due[group] = time.Now().Add(min(max(restShare*spent(), shortestRest), longestRest))
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
	failed := c.connect(routes, firstPatience)
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

// connect connects to routes, and returns the errors of those that fail.
func (c *Canary) connect(routes map[cluster.Family]*plan.Route, patience time.Duration) map[cluster.Family]error {
	var families []cluster.Family
	var to []netip.AddrPort
	for family, route := range routes {
		families, to = append(families, family), append(to, address(route))
	}
	failed := map[cluster.Family]error{}
	for i, err := range c.config.Caller.Call(to, patience) {
		if err != nil {
			failed[families[i]] = err
		}
	}
	return failed
}

// address is what is connected to.
func address(route *plan.Route) netip.AddrPort {
	return netip.AddrPortFrom(route.Frontend.Addr, route.Frontend.Port)
}

// how describes how a connection failed.
func how(err error) string {
	if errors.Is(err, syscall.ETIMEDOUT) {
		return "no answer"
	}
	return err.Error()
}

// leaveUntried removes the failures of families whose rules cannot be tried, and logs once why.
func (c *Canary) leaveUntried(ctx context.Context, routes map[cluster.Family]*plan.Route, failed map[cluster.Family]error) {
	for _, family := range c.config.Families {
		route, why := routes[family], ""
		if route == nil {
			why = "no ServiceCIDR of this family is known, a Service has its first address, or lo has no address of this family"
		} else if failed[family] != nil {
			if err := c.config.Unrouted(address(route)); err != nil {
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
	var families []cluster.Family
	var to, endpoints []netip.AddrPort
	for family, route := range unknown {
		families, to, endpoints = append(families, family), append(to, address(route)), append(endpoints, route.Pool.Endpoints[0])
	}
	var failed map[cluster.Family]error
	limited, cancel := context.WithTimeout(ctx, secondPatience)
	defer cancel()
	causes, err := c.config.Causes(limited, to, endpoints, func() { failed = c.connect(unknown, secondPatience) })
	for i, family := range families {
		if failed[family] == nil {
			continue
		}
		why := causes[i]
		switch {
		case why != "":
		case err != nil:
			why = "its packets could not be traced: " + err.Error()
		default:
			why = "no packet of it was seen"
		}
		why = strings.Join(slices.Concat([]string{why}, c.config.Check(ctx, Tracking), c.config.Check(ctx, Rules)), "; ")
		c.traced[family] = &failure{how(failed[family]), why, time.Now()}
	}
}

// report publishes what was found, by check.
func (c *Canary) report(ctx context.Context, found map[string]string) {
	c.mu.Lock()
	before := c.problems
	c.problems = found
	c.mu.Unlock()
	for _, check := range c.checks() {
		problem := found[check]
		if broken := problem != ""; before == nil || broken != (before[check] != "") {
			c.config.Broken(check, broken)
		}
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
