package announce

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// externalIPs reports which Services have external IPs, and whether they are served. Any user who may write a Service can capture
// traffic with spec.externalIPs (CVE-2020-8554), so the plan leaves them out unless the feature gate AllowServiceExternalIPs is on.
func (r *Reporter) externalIPs(s *proxy.Sync) {
	for name, change := range s.Changes.Services {
		r.count(change.Before, s.Changes.Before, -1)
		r.count(change.After, s.Plan, +1)
		if hasNew(change.Before, change.After) && withheld(name, s.Plan) {
			r.ignoresExternalIPs(change.After)
		}
	}
	r.config.ExternalIPs(r.served, r.ignored)
	if r.started {
		return
	}
	r.started = true
	switch {
	case r.served > 0:
		r.config.Logger.Info("Serving external IPs is deprecated: any user who may write Services can capture traffic with them (CVE-2020-8554)",
			"services", r.served, "hint", "stop using spec.externalIPs before the feature gate AllowServiceExternalIPs is removed")
	case r.ignored > 0:
		r.config.Logger.Info("External IPs are not served because the feature gate AllowServiceExternalIPs is off (CVE-2020-8554)",
			"services", r.ignored, "hint", "kube-proxy audit suggests manifests to use instead")
	}
}

// count adds n to the number of served or ignored Services. s may be nil.
func (r *Reporter) count(s *cluster.Service, p *plan.Plan, n int) {
	switch {
	case s == nil || len(s.ExternalIPs()) == 0:
	case withheld(s.Name, p):
		r.ignored += n
	default:
		r.served += n
	}
}

// withheld reports whether a plan leaves out a Service's external IPs.
func withheld(name cluster.ServiceName, p *plan.Plan) bool {
	decided, ok := p.Services.Get(name)
	return ok && decided.WithheldExternalIPs > 0
}

// hasNew reports whether a Service has other external IPs than before. Either may be nil.
func hasNew(before, now *cluster.Service) bool {
	if now == nil || len(now.ExternalIPs()) == 0 {
		return false
	}
	return before == nil || before.UID != now.UID || !slices.Equal(sorted(before.ExternalIPs()), sorted(now.ExternalIPs()))
}

// ignoresExternalIPs publishes an Event. It is the same for the same addresses, so that the proxies of all nodes publish it once.
func (r *Reporter) ignoresExternalIPs(s *cluster.Service) {
	addrs := sorted(s.ExternalIPs())
	named := listed(addrs[:min(len(addrs), maxListed)])
	if more := len(addrs) - maxListed; more > 0 {
		named = fmt.Sprintf("%s and %d more", named, more)
	}
	r.warn(s.Name, s.UID, proxy.Event{Reason: plan.ProblemExternalIPsNotServed, Action: "ServeExternalIPs", Once: listed(addrs),
		Message: fmt.Sprintf("spec.externalIPs is not served because the feature gate AllowServiceExternalIPs is off (CVE-2020-8554): %s. "+
			"Use a Service of type LoadBalancer, a Gateway or an Ingress; \"kube-proxy audit\" suggests manifests.", named)})
}

func listed(addrs []netip.Addr) string { return strings.Trim(fmt.Sprint(addrs), "[]") }

func sorted(addrs []netip.Addr) []netip.Addr {
	return slices.SortedFunc(slices.Values(addrs), netip.Addr.Compare)
}
