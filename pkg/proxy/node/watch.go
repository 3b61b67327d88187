package node

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/logonce"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// period is the time between checks of what the proxy waits for, while it waits. A shorter wait is not logged.
const period = time.Second

// Config configures a Watch.
type Config struct {
	// Name is the node's name.
	Name string
	// Families are the families that are served.
	Families []cluster.Family
	// Plan determines which parts of the node matter.
	Plan *plan.Options
	// NodePortsByDefault reports that the configuration selects no addresses for node ports.
	NodePortsByDefault bool
	// Snapshot returns the current snapshot: cluster.Builder.Snapshot. It is not called before the source has listed
	// everything, because the builder is faster until its first snapshot is taken.
	Snapshot func() *cluster.Snapshot
	// Unlisted describes what the source has not listed yet, "" when it has listed everything; and what the user can do about
	// it, "" if no request has failed.
	Unlisted func() (what, hint string)
	// Waiting is called periodically for every reason, with whether the proxy waits for it.
	Waiting func(reason string, waiting bool)
	Logger  klog.Logger
}

// Watch watches this node. It is a proxy.Observer.
type Watch struct {
	proxy.Ignore
	config Config
	failed chan error
	// changed receives a value after a sync with another Node.
	changed chan struct{}

	// The other fields belong to the loop's goroutine. settled reports that the Node has had a primary address of a family
	// that is served.
	settled bool
	warned  logonce.Conditions[warning]
	// node is the Node of the last sync, nodePorts holds the families in which any Service ever had a node port.
	node      *cluster.Node
	nodePorts map[cluster.Family]bool
	// hinted reports that there was an endpoint with zone hints while the Node had no zone, zoned that it had one in the last sync.
	hinted, zoned bool
}

var _ proxy.Observer = (*Watch)(nil)

// NewWatch returns a Watch that has not seen a sync yet.
func NewWatch(config Config) *Watch {
	return &Watch{config: config, failed: make(chan error, 1), changed: make(chan struct{}, 1), nodePorts: map[cluster.Family]bool{}}
}

// Waiting returns what the proxy waits for, with what to do about it. It is safe for concurrent use.
func (w *Watch) Waiting() []Wait {
	if unlisted, hint := w.config.Unlisted(); unlisted != "" {
		return []Wait{{APIServer, unlisted, cmp.Or(hint, "check the address in the kubeconfig or --master, and the network to it")}}
	}
	return missing(w.config.Snapshot().Node, w.config.Plan)
}

// WaitingFor names what the proxy waits for. It is safe for concurrent use.
func (w *Watch) WaitingFor() []string {
	var all []string
	for _, wait := range w.Waiting() {
		all = append(all, wait.For)
	}
	return all
}

// Run logs and measures what the proxy waits for, until ctx ends. It returns an error if the node's primary address is of a
// family that is not served.
func (w *Watch) Run(ctx context.Context) error {
	for _, warning := range configured(w.config.Plan, w.config.NodePortsByDefault) {
		warning.log(w.config.Logger)
	}
	check := time.NewTimer(period)
	defer check.Stop()
	logged := logonce.Conditions[Reason]{Again: logonce.Reminder}
	synced := false
	w.measure(w.Waiting())
	for {
		select {
		case err := <-w.failed:
			return err
		case <-ctx.Done():
			return nil
		case <-w.changed:
			synced = true
			w.measure(w.Waiting())
			check.Reset(period)
		case <-check.C:
			waits := w.Waiting()
			w.measure(waits)
			w.log(waits, &logged)
			if len(waits) > 0 || !synced { // otherwise only another Node makes it wait
				check.Reset(period)
			}
		}
	}
}

// measure updates the metric of every reason.
func (w *Watch) measure(waits []Wait) {
	for _, reason := range Reasons() {
		w.config.Waiting(string(reason), holds(waits, reason))
	}
}

func holds(waits []Wait, reason Reason) bool {
	return slices.ContainsFunc(waits, func(wait Wait) bool { return wait.Reason == reason })
}

// log logs what the proxy waits for, and what it no longer waits for.
func (w *Watch) log(waits []Wait, logged *logonce.Conditions[Reason]) {
	for _, wait := range waits {
		if logged.Changed(wait.Reason, wait.For) {
			w.config.Logger.Info("Waiting", "node", w.config.Name, "for", wait.For, "hint", wait.Hint)
		}
	}
	for _, reason := range logged.EndedExcept(func(reason Reason) bool { return holds(waits, reason) }) {
		w.config.Logger.Info("No longer waiting", "reason", reason)
	}
}

// Synced checks the node of a sync. Its cost is proportional to the number of Services that changed.
func (w *Watch) Synced(s *proxy.Sync) {
	if s.After.Node != w.node {
		if w.node == nil || !slices.Equal(w.node.Addresses, s.After.Node.Addresses) {
			w.config.Logger.Info("Node addresses", "node", w.config.Name, "addresses", s.After.Node.Addresses, "nodePortAddresses", s.Plan.Node.NodePortAddrs)
		}
		w.node = s.After.Node
		select {
		case w.changed <- struct{}{}:
		default: // Run has not received the last one yet
		}
	}
	w.checkPrimary(s.After.Node)
	for _, change := range s.Changes.Decisions {
		if change.Is {
			for _, route := range change.After.Routes {
				if route.Kind == plan.NodePort {
					w.nodePorts[route.Frontend.Family()] = true
				}
			}
		}
	}
	w.findHints(s)
	for _, warning := range observed(s.After.Node, w.config.Plan, w.nodePorts, w.hinted) {
		w.warn(warning)
	}
	for _, problem := range s.Plan.NodeProblems() {
		w.warn(warning{message: "A setting does not fit this node", hint: problem.Message})
	}
}

// findHints looks for zone hints that the Node's missing zone makes useless.
func (w *Watch) findHints(s *proxy.Sync) {
	had := w.zoned
	if w.zoned = s.After.Node.Zone != ""; w.zoned || w.hinted {
		return
	}
	if had {
		for service := range s.After.Services.Values() {
			w.hinted = w.hinted || slices.ContainsFunc(service.Slices, hinted)
		}
		return
	}
	for _, change := range s.Changes.Services {
		w.hinted = w.hinted || change.Is && slices.ContainsFunc(change.After.Slices, hinted)
	}
}

// hinted reports whether an endpoint of a slice has zone hints.
func hinted(s *cluster.EndpointSlice) bool {
	return slices.ContainsFunc(s.Endpoints, func(e cluster.Endpoint) bool { return e.Zones.Any() })
}

// checkPrimary ends the proxy if the Node's first primary address is of a family that is not served: after a restart the
// machine may have that family. Later it only warns: a restart would interrupt the family that is served.
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
	default: // Run has not returned the first error yet
	}
}

// warn logs a warning once: it may be intended, and needs no reminder.
func (w *Watch) warn(about warning) {
	if w.warned.Changed(about, "") {
		about.log(w.config.Logger)
	}
}
