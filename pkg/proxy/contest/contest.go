// Package contest tells of Services that are not served on an address, protocol and port because an older Service claims
// the same. The plan decides who has it; here its loser is told, once for each contest, in the log and by an Event.
package contest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// maxListed bounds the frontends that one message names.
const maxListed = 8

// Config is what a Watcher is made of.
type Config struct {
	// Recorder publishes the Events of Services that lose a contest.
	Recorder proxy.Recorder
	Logger   klog.Logger
}

// Watcher follows contested frontends. It is a proxy.Observer.
type Watcher struct {
	config Config
	// seen is the plan of the last sync.
	seen *plan.Plan
}

// New makes a Watcher that has seen nothing yet.
func New(config Config) *Watcher { return &Watcher{config: config, seen: &plan.Plan{}} }

// Queued does nothing: only what is decided is told.
func (w *Watcher) Queued(time.Time) {}

// Drifted does nothing: rules do not matter here.
func (w *Watcher) Drifted(backend.Drift) {}

// Synced tells of contests that are new. Its cost follows what changed.
func (w *Watcher) Synced(s *proxy.Sync) {
	var losers []cluster.ServiceName
	for _, change := range cluster.Changes(w.seen.Contested, s.Plan.Contested) {
		if !change.Is {
			continue
		}
		for _, route := range change.After.Routes[1:] {
			if !has(change.Before, change.After.Routes[0].Service, route.Service) {
				losers = append(losers, route.Service)
			}
		}
	}
	for name, change := range cluster.Changes(w.seen.Services, s.Plan.Services) {
		if change.Was && change.Is && change.Before.UID != change.After.UID { // another object of the name
			losers = append(losers, name)
		}
	}
	slices.SortFunc(losers, cluster.ServiceName.Compare)
	for _, name := range slices.Compact(losers) {
		w.tell(name, s.Plan)
	}
	w.seen = s.Plan
}

// has tells whether one Service had a frontend that another claimed in vain; nobody claimed it where claims is nil.
func has(claims *plan.Claims, holder, loser cluster.ServiceName) bool {
	return claims != nil && claims.Routes[0].Service == holder &&
		slices.ContainsFunc(claims.Routes[1:], func(r *plan.Route) bool { return r.Service == loser })
}

// tell names all frontends that a Service does not get, if any, and who has them. It is the same for the same contests, whoever
// finds them and in whatever order they began.
func (w *Watcher) tell(name cluster.ServiceName, p *plan.Plan) {
	service, _ := p.Services.Get(name)
	var lost []string
	for _, route := range service.Routes {
		if holder, _ := p.Frontends.Get(route.Frontend); holder.Service != name {
			lost = append(lost, fmt.Sprintf("%s %s is served for %s", route.Kind, describe(route.Frontend), holder.Name))
		}
	}
	if len(lost) == 0 {
		return
	}
	all := strings.Join(lost, ", ")
	if more := len(lost) - maxListed; more > 0 {
		lost = append(lost[:maxListed], fmt.Sprintf("and %d more", more))
	}
	message := fmt.Sprintf("Older Services claim the same address, protocol and port, and have it: %s. Give one of them another address or port.",
		strings.Join(lost, ", "))
	w.config.Logger.Info(message, "service", name)
	w.config.Recorder.Event(proxy.Event{
		Kind: "Service", Namespace: name.Namespace, Name: name.Name, UID: service.UID,
		Warning: true, Reason: "AddressConflict", Action: "ServeAddress", Once: all, Message: message,
	})
}

// describe names a frontend; a node port's address is none.
func describe(f plan.Frontend) string {
	if f.IsNodePort() {
		return fmt.Sprintf("%d/%s (%s)", f.Port, f.Protocol, f.Family())
	}
	return f.String()
}
