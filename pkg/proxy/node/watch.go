package node

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// period is the time between looks at what is waited for. What comes sooner than that is not logged.
const period = time.Second

// Config is what a Watch is made of.
type Config struct {
	// Families are those that are served.
	Families []cluster.Family
	// Plan are the options that say which parts of the node matter.
	Plan *plan.Options
	// NodePortsByDefault reports that the configuration selects no addresses for node ports.
	NodePortsByDefault bool
	// Snapshot returns what is known now: cluster.Builder.Snapshot.
	Snapshot func() *cluster.Snapshot
	// Unlisted describes what the API server has not listed yet, "" when it has listed everything.
	Unlisted func() string
	// Waiting is called now and then with whether the proxy waits for a reason.
	Waiting func(reason string, waiting bool)
	Logger  klog.Logger
	// Clock is the real one but in tests.
	Clock clock.WithTicker
}

// Watch follows this node. It is a proxy.Observer.
type Watch struct {
	config Config
	failed chan error
	// What follows belongs to the loop's goroutine. settled reports that a primary address has been seen that is served.
	settled bool
	warned  map[string]bool
	// services and nodePorts are the Services seen last, and the families in which any of them ever had a node port.
	services  cluster.Map[cluster.ServiceName, *plan.Service]
	nodePorts map[cluster.Family]bool
}

// NewWatch makes a Watch that has seen nothing yet.
func NewWatch(config Config) *Watch {
	return &Watch{config: config, failed: make(chan error, 1), warned: map[string]bool{}, nodePorts: map[cluster.Family]bool{}}
}

// Waiting returns what the proxy waits for now, with what to do about it. It may be called by any goroutine.
func (w *Watch) Waiting() []Wait {
	if unlisted := w.config.Unlisted(); unlisted != "" {
		return []Wait{{APIServer, "the API server to list " + unlisted, "check the address in the kubeconfig or --master, and the network to it"}}
	}
	return missing(w.config.Snapshot().Node, w.config.Plan)
}

// WaitingFor names what the proxy waits for now. It may be called by any goroutine.
func (w *Watch) WaitingFor() []string {
	var all []string
	for _, wait := range w.Waiting() {
		all = append(all, wait.For)
	}
	return all
}

// Run logs and counts what is waited for, until ctx ends. It returns an error if the node's primary address is of a family
// that is not served.
func (w *Watch) Run(ctx context.Context) error {
	for _, warning := range configured(w.config.Plan, w.config.NodePortsByDefault) {
		warning.log(w.config.Logger)
	}
	ticker := w.config.Clock.NewTicker(period)
	defer ticker.Stop()
	var logged []Reason
	for first := true; ; first = false {
		waits := w.Waiting()
		w.measure(waits)
		if !first {
			logged = w.report(waits, logged)
		}
		select {
		case err := <-w.failed:
			return err
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// measure reports every reason to wait, and whether it holds.
func (w *Watch) measure(waits []Wait) {
	for _, reason := range Reasons() {
		w.config.Waiting(string(reason), slices.ContainsFunc(waits, func(wait Wait) bool { return wait.Reason == reason }))
	}
}

// report logs what has changed since the last report, whose reasons are in before. It returns those of this one.
func (w *Watch) report(waits []Wait, before []Reason) (now []Reason) {
	for _, wait := range waits {
		now = append(now, wait.Reason)
		if !slices.Contains(before, wait.Reason) {
			w.config.Logger.Info("Waiting", "node", w.config.Snapshot().Node.Name, "for", wait.For, "hint", wait.Hint)
		}
	}
	for _, reason := range before {
		if !slices.Contains(now, reason) {
			w.config.Logger.Info("No longer waiting", "reason", reason)
		}
	}
	return now
}

// Synced checks the node that a sync was for. Its cost follows the number of Services that changed.
func (w *Watch) Synced(s *proxy.Sync) {
	w.checkPrimary(s.After.Node)
	for _, change := range cluster.Changes(w.services, s.Plan.Services) {
		if change.Is {
			for _, route := range change.After.Routes {
				if route.Kind == plan.NodePort {
					w.nodePorts[route.Frontend.Family()] = true
				}
			}
		}
	}
	w.services = s.Plan.Services
	for _, warning := range observed(s.After.Node, w.config.Plan, w.nodePorts) {
		w.warn(warning)
	}
}

// checkPrimary ends the proxy if the first primary address that it sees is of a family that is not served: a restart may
// find that the machine has it. Later the other family is worth more than a restart.
func (w *Watch) checkPrimary(n *cluster.Node) {
	primary, known := n.Primary()
	if !known || slices.Contains(w.config.Families, primary) {
		w.settled = w.settled || known
		return
	}
	const hint = "set it up on this machine (for IPv6: net.ipv6.conf.all.disable_ipv6=0, and ip6tables if the proxy mode uses it), " +
		"or give an address of another family with nodeIPOverride (--bind-address)"
	if w.settled {
		w.warn(warning{message: "The Node's primary address is now of a family that is not served", family: primary, hint: hint})
		return
	}
	select {
	case w.failed <- fmt.Errorf("the primary address %s of the Node %q is of family %s, which is not served here; %s", n.Addresses[0], n.Name, primary, hint):
	default: // one error is enough
	}
}

// warn logs a warning about the node once.
func (w *Watch) warn(about warning) {
	if key := fmt.Sprint(about.message, about.family); !w.warned[key] {
		w.warned[key] = true
		about.log(w.config.Logger)
	}
}
