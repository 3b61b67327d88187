package announce

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// maxListed is the number of frontends or addresses that one message names at most.
const maxListed = 8

// newLosers returns the Services that are newly not served on an address, protocol and port, because another one has the same.
func newLosers(changes *proxy.Changes) (losers []cluster.ServiceName) {
	for _, change := range changes.Contested {
		if !change.Is {
			continue
		}
		for route := range lost(change.Before, change.After) {
			losers = append(losers, route.Service)
		}
	}
	return losers
}

// lost returns the routes that newly lost: all that are not served, or those that were added if the same one was served before.
// before may be nil.
func lost(before, after *plan.Claims) iter.Seq[*plan.Route] {
	served := after.Served()
	if before == nil || before.Served().Service != served.Service || before.Served().Kind != served.Kind {
		return after.Lost()
	}
	return func(yield func(*plan.Route) bool) {
		for _, change := range cluster.Changes(before.Routes, after.Routes) {
			if change.Is && !change.Was && change.After != served && !yield(change.After) {
				return
			}
		}
	}
}

// contested reports all frontends on which these Services are not served, if any. Its text depends only on the plan, so that a
// restarted process publishes the same Event, and the API server can detect the duplicate.
func (r *Reporter) contested(losers []cluster.ServiceName, p *plan.Plan) {
	slices.SortFunc(losers, cluster.ServiceName.Compare)
	for _, name := range slices.Compact(losers) {
		var lost []string
		for _, problem := range p.Problems(name, nil) {
			if problem.Reason == plan.ProblemContested {
				lost = append(lost, problem.Message)
			}
		}
		if len(lost) == 0 {
			continue
		}
		all := strings.Join(lost, "; ")
		if more := len(lost) - maxListed; more > 0 {
			lost = append(lost[:maxListed], fmt.Sprintf("and %d more", more))
		}
		named := strings.Join(lost, "; ")
		r.config.Logger.Info("Service shares addresses with other Services and is not served on them", "service", name, "addresses", named)
		service, _ := p.Services.Get(name)
		r.warn(name, service.UID, proxy.Event{Reason: plan.ProblemContested, Action: "ServeAddress", Once: all,
			Message: fmt.Sprintf("Other Services have the same address, protocol and port: %s. Give one of them another address or port.", named)})
	}
}
