package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// The reasons of problems, as commands, findings, metrics, Events and the status page name them.
const (
	ProblemNoSuchPort           = "NoSuchPort"
	ProblemNoEndpoints          = "NoEndpoints"
	ProblemNoLocalEndpoints     = "NoLocalEndpoints"
	ProblemContested            = "Contested"
	ProblemExternalIPsNotServed = "ExternalIPsNotServed"
	ProblemFamilyNotServed      = "FamilyNotServed"
	ProblemStatusNotServed      = "StatusNotServed"
	ProblemTooLarge             = "TooLarge"
	// ProblemBalancing: connections are served, but not balanced as the annotations say.
	ProblemBalancing = "BalancingNotServed"
	// ProblemFence: connections are served, but not bounded as the annotation says.
	ProblemFence = "LimitsNotServed"
	// The others are observed.
	ProblemRefused = "RefusedByKernel"
	// ProblemDelayed: the last change of the Service is not in force yet, because it is expensive and is programmed in parts.
	ProblemDelayed = "ChangeDelayed"
	// ProblemHealthCheck: the proxy cannot listen on the Service's health check node port.
	ProblemHealthCheck = "HealthCheckNotServed"
)

// ProblemReasons returns all reasons.
func ProblemReasons() []string {
	return []string{
		ProblemNoSuchPort, ProblemNoEndpoints, ProblemNoLocalEndpoints, ProblemContested, ProblemExternalIPsNotServed, ProblemFamilyNotServed,
		ProblemStatusNotServed, ProblemTooLarge, ProblemBalancing, ProblemFence, ProblemRefused, ProblemDelayed, ProblemHealthCheck,
	}
}

// ProblemClusterCIDR is a reason of [Plan.NodeProblems].
const ProblemClusterCIDR = "NoEndpointInClusterCIDR"

// Problem is a reason why connections to a Service fail on this node, or are not served as it asks for.
type Problem struct {
	// Reason is one of [ProblemReasons], or of those of the node.
	Reason string
	// Message says what is wrong, with the objects' names, and what to do.
	Message string
	// Port, as in [Port.String], Family and Address are those that fail; empty if the problem is not one of them alone.
	Port, Family, Address string
}

// Reasons returns the set of the reasons of problems.
func Reasons(of []Problem) map[string]bool {
	reasons := map[string]bool{}
	for _, problem := range of {
		reasons[problem.Reason] = true
	}
	return reasons
}

// Observed holds the problems of Services that no plan shows, because only the running proxy knows them.
type Observed map[cluster.ServiceName][]Problem

// Problems returns the reasons why connections to a Service fail on this node: those that the plan shows, then the observed ones.
// There are none of a Service that the plan does not have.
func (p *Plan) Problems(name cluster.ServiceName, observed Observed) []Problem {
	decided, planned := p.Services.Get(name)
	s, known := p.snapshot.Services.Get(name)
	if !planned || !known {
		return nil
	}
	j := &judge{plan: p, service: s, decided: decided, whys: map[cluster.Family]string{}}
	j.missingPorts()
	j.routes()
	if n := decided.WithheldExternalIPs; n > 0 {
		j.add(Problem{Reason: ProblemExternalIPsNotServed},
			"external IPs (%s) are not served because the feature gate AllowServiceExternalIPs is off (docs/external-ips.md)", listed(s.ExternalIPs()))
	}
	if n := decided.WithheldPorts; n > 0 {
		j.add(Problem{Reason: ProblemTooLarge}, "the last %d of %d ports are not served: the Service would need too many rules (docs/scale.md); split it", n, len(s.Ports))
	}
	if why := decided.Unbalanced(); why != "" {
		j.add(Problem{Reason: ProblemBalancing}, "%s (docs/balancing.md)", why)
	}
	if why := decided.Unfenced(); why != "" {
		j.add(Problem{Reason: ProblemFence}, "%s (docs/limits.md)", why)
	}
	j.families()
	for _, addr := range s.Stray() {
		j.add(Problem{Reason: ProblemStatusNotServed, Family: cluster.FamilyOf(addr).String(), Address: addr.String()}, "%s", strayText(s, addr))
	}
	return append(j.found, observed[name]...)
}

// strayText says why an address in the status of a Service is not served.
func strayText(s *cluster.Service, addr netip.Addr) string {
	return fmt.Sprintf("%s is in the status of %s, whose type is not LoadBalancer: it is not served", addr, s.Name)
}

// NodeProblems returns which settings do not fit this node.
func (p *Plan) NodeProblems() (found []Problem) {
	for _, cidr := range p.Node.LocalTraffic.CIDRs {
		if p.outside(cidr) {
			found = append(found, Problem{Reason: ProblemClusterCIDR, Family: cluster.FamilyOf(cidr.Addr()).String(), Message: fmt.Sprintf("no endpoint on this node is in "+
				"%s, by which local traffic is detected, so connections from pods to cluster IPs are masqueraded; correct detectLocal.clusterCIDRs (--cluster-cidr)", cidr)})
		}
	}
	return found
}

// judge collects the problems of one Service.
type judge struct {
	plan    *Plan
	service *cluster.Service
	decided *Service
	found   []Problem
	// whys holds why no endpoint of a family can be used, which takes a look at all of them.
	whys map[cluster.Family]string
}

func (j *judge) add(problem Problem, format string, args ...any) {
	problem.Message = fmt.Sprintf(format, args...)
	j.found = append(j.found, problem)
}

// maxMissing bounds how many slices without a port are reported, and maxListed how many ports or addresses a message lists: the
// author of a Service may choose thousands of both.
const (
	maxMissing = 20
	maxListed  = 5
)

// missingPorts finds the slices that do not have one of the ports that are served. It ignores slices without endpoints and those of
// other families.
func (j *judge) missingPorts() {
	for i := range j.service.Ports[:len(j.service.Ports)-int(j.decided.WithheldPorts)] {
		port := &j.service.Ports[i]
		for _, slice := range j.service.Slices {
			if !lacks(j.service, slice, port) {
				continue
			}
			if len(j.found) == maxMissing {
				return
			}
			of := Port{Service: j.service.Name, Name: port.Name, Protocol: port.Protocol}
			j.add(Problem{Reason: ProblemNoSuchPort, Port: of.String()}, "EndpointSlice %s/%s has no port %s; it has %s: compare the port names of the "+
				"Service (spec.ports[].name, and a targetPort that is a name) and of the pods' containers",
				j.service.Name.Namespace, slice.Name, PortText(port.Name, port.Protocol), portsText(slice.Ports))
		}
	}
}

// lacks reports whether a slice has endpoints for a Service, but not its port.
func lacks(s *cluster.Service, slice *cluster.EndpointSlice, port *cluster.ServicePort) bool {
	if len(slice.Endpoints) == 0 || !s.InFamily(cluster.FamilyOf(slice.Endpoints[0].Addr)) {
		return false
	}
	_, has := slice.PortOf(port)
	return !has
}

func portsText(ports []cluster.EndpointPort) string {
	var texts []string
	for _, port := range ports {
		texts = append(texts, PortText(port.Name, port.Protocol))
	}
	if len(texts) == 0 {
		return "none"
	}
	return firstOf(texts)
}

func listed(addrs []netip.Addr) string {
	var texts []string
	for _, addr := range addrs {
		texts = append(texts, addr.String())
	}
	return firstOf(texts)
}

// firstOf joins the first few of many texts.
func firstOf(texts []string) string {
	text := strings.Join(texts[:min(len(texts), maxListed)], ", ")
	if more := len(texts) - maxListed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// unserved is a port of which connections fail for one reason, under one policy.
type unserved struct {
	port   Port // without family
	reason Reason
	policy cluster.Policy
}

// routes finds those that are not served, and those that lead to no endpoint: once for all addresses of a port under a policy.
func (j *judge) routes() {
	var order []unserved
	of := map[unserved][]*Route{}
	for _, route := range j.decided.Routes {
		if j.plan.Contested.Len() > 0 {
			if lost := j.plan.Lost(route); lost != "" {
				j.add(Problem{ProblemContested, "", route.Of().String(), route.Frontend.Family().String(), route.Frontend.Addr.String()}, "%s is %s", route.Address(), lost)
				continue
			}
		}
		if route.Verdict == Balance {
			continue
		}
		key := unserved{route.Of(), route.Reason(), route.Policy}
		key.port.Family = 0
		if of[key] == nil {
			order = append(order, key)
		}
		of[key] = append(of[key], route)
	}
	for _, key := range order {
		j.unserved(key, of[key])
	}
}

// unserved adds the problem that the routes of a port have in common.
func (j *judge) unserved(of unserved, routes []*Route) {
	families := map[cluster.Family]bool{}
	for _, route := range routes {
		families[route.Frontend.Family()] = true
	}
	problem, family, where := Problem{Reason: ProblemNoEndpoints, Port: of.port.String()}, routes[0].Frontend.Family(), ""
	if len(families) > 1 {
		family = 0
	} else if slices.ContainsFunc(j.decided.ClusterIPs, func(a netip.Addr) bool { return cluster.FamilyOf(a) != family }) {
		problem.Family, where = family.String(), " in "+family.String()
	}
	if of.reason != NoLocalEndpoints {
		j.add(problem, "%s: connections are rejected%s: %s", routes[0].Name, where, j.why(family))
		return
	}
	problem.Reason = ProblemNoLocalEndpoints
	var all, outside []string // the kinds of addresses where all connections are dropped, or those from outside: others use the short cut
	for _, route := range routes {
		of := &all
		if route.ShortCut != nil {
			of = &outside
		}
		if kind := route.Kind.oneOf(); !slices.Contains(*of, kind) {
			*of = append(*of, kind)
		}
	}
	dropped, avoided := "to "+strings.Join(all, " or "), ""
	if len(outside) > 0 {
		from := "from outside to " + strings.Join(outside, " or ")
		if dropped = from; len(all) > 0 {
			dropped = fmt.Sprintf("to %s, and %s,", strings.Join(all, " or "), from)
		}
		if h := j.decided.HealthCheck; h != nil {
			avoided = fmt.Sprintf("; load balancers that check port %d avoid this node", h.Port)
		}
	}
	j.add(problem, "%s: connections %s are dropped on this node%s: it has no usable endpoint, and the traffic policy is Local%s",
		routes[0].Name, dropped, where, avoided)
}

// why describes the endpoints in a family, or in both if it is 0, of which no connection may use one.
func (j *judge) why(family cluster.Family) string {
	if text, known := j.whys[family]; known {
		return text
	}
	all, weighs := map[netip.Addr]bool{}, map[netip.Addr]bool{} // whether it is ready, and has a weight
	for _, slice := range j.service.Slices {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			all[e.Addr] = all[e.Addr] || e.Conditions.Has(cluster.Ready)
			weighs[e.Addr] = weighs[e.Addr] || j.plan.options.weight(e) > 0
		}
	}
	own, ready, weightless := 0, 0, 0
	for addr, isReady := range all {
		if family != 0 && cluster.FamilyOf(addr) != family {
			continue
		}
		if own++; isReady {
			ready++
		}
		if isReady && !weighs[addr] {
			weightless++
		}
	}
	var text string
	switch {
	case len(j.service.Slices) == 0:
		text = "there is no EndpointSlice with the label kubernetes.io/service-name: " + j.service.Name.Name + "; does spec.selector match any pods?"
	case len(all) == 0:
		text = "its EndpointSlices have no endpoints; does spec.selector match any pods?"
	case own == 0:
		text = fmt.Sprintf("none of %d endpoints is %s; let the pods have %s addresses, or change spec.ipFamilies", len(all), family, family)
	case ready == 0:
		text = fmt.Sprintf("none of %d endpoints is ready; see the pods' readiness probes", own)
	case ready == weightless:
		text = fmt.Sprintf("none of %d ready endpoints takes new connections: their weights are 0", ready)
	default:
		text = fmt.Sprintf("none of %d ready endpoints can be used for this port", ready)
	}
	j.whys[family] = text
	return text
}

// families finds endpoints and addresses of a family in which the Service has no cluster IP, and a Service without one that this node serves.
func (j *judge) families() {
	served := func(a netip.Addr) bool { return j.plan.options.Serves(j.plan.snapshot.Node, cluster.FamilyOf(a)) }
	if ips := j.service.ClusterIPs; len(ips) > 0 && !slices.ContainsFunc(ips, served) {
		family := cluster.FamilyOf(ips[0])
		j.add(Problem{Reason: ProblemFamilyNotServed, Family: family.String()}, "%s is not served on this node, and the Service has no other cluster IP", family)
	}
	found := map[cluster.Family]bool{}
	for _, slice := range j.service.Slices {
		if len(slice.Endpoints) == 0 {
			continue
		}
		if family := cluster.FamilyOf(slice.Endpoints[0].Addr); !found[family] && !j.service.InFamily(family) {
			found[family] = true
			j.add(Problem{Reason: ProblemFamilyNotServed, Family: family.String()}, "there are %s endpoints, but the Service has no %s cluster IP (spec.ipFamilies)", family, family)
		}
	}
	j.outside(LoadBalancerIP, j.service.LoadBalancerIPs())
	if j.decided.WithheldExternalIPs == 0 {
		j.outside(ExternalIP, j.service.ExternalIPs())
	}
}

// outside finds addresses of a kind that are of such a family.
func (j *judge) outside(kind Kind, addrs []netip.Addr) {
	for _, addr := range addrs {
		if family := cluster.FamilyOf(addr); !j.service.InFamily(family) {
			j.add(Problem{Reason: ProblemFamilyNotServed, Family: family.String(), Address: addr.String()},
				"%s %s is not served: the Service has no %s cluster IP (spec.ipFamilies)", kind, addr, family)
		}
	}
}
