package findings

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/pkg/terminal"
)

// view is the snapshot and the plan of everyNode, once all objects are known.
type view struct {
	*Analyzer
	snapshot *cluster.Snapshot
	plan     *plan.Plan
}

// analyze finds what the snapshot and the plan show.
func (a *Analyzer) analyze() {
	options := a.options.Plan
	if options == nil {
		options = &plan.Options{}
	}
	v := &view{Analyzer: a, snapshot: a.objects.builder.Snapshot()}
	v.plan = plan.Compute(v.snapshot, options, nil)
	for name, s := range v.snapshot.Services.All() {
		decided, _ := v.plan.Services.Get(name)
		v.endpoints(s, decided)
		v.addresses(s, decided)
	}
	v.contests()
	v.sharedClusterIPs()
	v.healthCheckPorts()
	v.slicesWithoutService()
	v.endpointAddresses()
	v.missingNodes()
}

// addService adds a finding about a Service.
func (v *view) addService(name cluster.ServiceName, code Code, format string, args ...any) {
	v.Add(Finding{Code: code, Kind: "Service", Namespace: name.Namespace, Name: name.Name, Message: fmt.Sprintf(format, args...)})
}

// addSlice adds a finding about an EndpointSlice.
func (v *view) addSlice(namespace, name string, code Code, format string, args ...any) {
	v.Add(Finding{Code: code, Kind: "EndpointSlice", Namespace: namespace, Name: name, Message: fmt.Sprintf(format, args...)})
}

// endpoints finds why connections to a Service go nowhere.
func (v *view) endpoints(s *cluster.Service, decided *plan.Service) {
	listed := 0
	for _, slice := range s.Slices {
		listed += len(slice.Endpoints)
	}
	switch {
	case len(s.Slices) == 0 && v.objects.selectors[s.Name]:
		v.addService(s.Name, NoSlices, "no EndpointSlice has the label kubernetes.io/service-name=%s: connections are rejected", s.Name.Name)
	case len(s.Slices) == 0:
		v.addService(s.Name, NoSelectorNoSlices, "it has no selector, and no EndpointSlice has the label kubernetes.io/service-name=%s: connections are rejected", s.Name.Name)
	case listed == 0:
		v.addService(s.Name, NoEndpoints, "its EndpointSlices have no endpoint: connections are rejected")
	default:
		known, unknown := listedPorts(s)
		for i := range s.Ports {
			port := &s.Ports[i]
			if slices.ContainsFunc(s.Slices, func(slice *cluster.EndpointSlice) bool { return lists(slice, port) }) {
				v.port(s, decided, port)
			} else {
				v.notListed(s, port, known, unknown)
			}
		}
	}
}

// lists reports whether a slice has endpoints for a port of a Service.
func lists(slice *cluster.EndpointSlice, port *cluster.ServicePort) bool {
	_, has := slice.PortOf(port)
	return has && len(slice.Endpoints) > 0
}

// listedPorts names the ports of a Service's slices with endpoints: those that the Service has too, and those that it has not.
func listedPorts(s *cluster.Service) (known, unknown string) {
	type port struct {
		name     string
		protocol cluster.Protocol
	}
	own := map[port]bool{}
	for _, p := range s.Ports {
		own[port{p.Name, p.Protocol}] = true
	}
	var both, slice []string
	for _, of := range s.Slices {
		if len(of.Endpoints) == 0 {
			continue
		}
		for _, p := range of.Ports {
			text := plan.PortText(p.Name, p.Protocol)
			if own[port{p.Name, p.Protocol}] {
				both = append(both, text)
			} else {
				slice = append(slice, fmt.Sprintf("%s (port %d, in %s)", text, p.Port, of.Name))
			}
		}
	}
	return some(both), some(slice)
}

// notListed notes that no slice with endpoints has a port of a Service. known and unknown are those of listedPorts.
func (v *view) notListed(s *cluster.Service, port *cluster.ServicePort, known, unknown string) {
	missing := plan.PortText(port.Name, port.Protocol)
	switch {
	case unknown != "":
		v.addService(s.Name, PortNameMismatch, "no EndpointSlice has port %s; they have %s, which the Service does not have: connections to port %d are rejected",
			missing, unknown, port.Port)
	case known != "":
		v.addService(s.Name, PortNotInSlices, "no EndpointSlice has port %s; they have %s: connections to port %d are rejected", missing, known, port.Port)
	default:
		v.addService(s.Name, PortNotInSlices, "no EndpointSlice has port %s; they have no ports: connections to port %d are rejected", missing, port.Port)
	}
}

// port finds what the plan decided about a port that slices have.
func (v *view) port(s *cluster.Service, decided *plan.Service, port *cluster.ServicePort) {
	var served, rejected []string // families
	var dropped, terminating []string
	for _, route := range decided.Routes {
		if route.Port() != port.Name || route.Frontend.Protocol != port.Protocol {
			continue
		}
		family := route.Frontend.Family().String()
		switch route.Reason() {
		case plan.NoEndpoints:
			rejected = append(rejected, family)
		case plan.NoLocalEndpoints:
			dropped = append(dropped, frontendText(route))
		case plan.AllTerminating, plan.LocalTerminating:
			terminating = append(terminating, frontendText(route))
		}
		if route.Reason() != plan.NoEndpoints {
			served = append(served, family)
		}
	}
	text := plan.PortText(port.Name, port.Protocol)
	switch {
	case len(rejected) > 0 && len(served) > 0:
		v.addService(s.Name, FamilyWithoutEndpoints, "port %s has no usable endpoint in %s, only in %s: connections to its %s address are rejected",
			text, rejected[0], served[0], rejected[0])
	case len(rejected) > 0:
		v.addService(s.Name, EndpointsNotReady, "port %s: none of its endpoints is ready (%s): connections are rejected", text, endpointTexts(s, port))
	}
	if len(dropped) > 0 {
		v.addService(s.Name, LocalWithoutEndpoints, "%s: the traffic policy is Local, and no usable endpoint names a node: every node drops connections", some(dropped))
	}
	if len(terminating) > 0 {
		v.addService(s.Name, OnlyTerminating, "%s: no endpoint is ready; connections go to those that still serve while terminating", some(terminating))
	}
}

// contests finds the Services that do not get an address that they claim.
func (v *view) contests() {
	type loss struct {
		service cluster.ServiceName
		text    string
	}
	known := map[loss]bool{} // a node port is claimed once in each family
	for _, claims := range v.plan.Contested.All() {
		for route := range claims.Lost() {
			l := loss{route.Service, frontendText(route) + " is " + v.plan.Lost(route)}
			if shared := route.Kind == plan.ClusterIP && claims.Served().Kind == plan.ClusterIP; !shared && !known[l] {
				known[l] = true
				v.addService(l.service, Contested, "%s", l.text)
			}
		}
	}
}

// sharedClusterIPs finds the Services that have another one's cluster IP.
func (v *view) sharedClusterIPs() {
	owners := map[netip.Addr][]cluster.ServiceName{}
	for name, s := range v.snapshot.Services.All() {
		for _, addr := range s.ClusterIPs {
			if n, _ := v.plan.ClusterIPs.Get(addr); n > 1 {
				owners[addr] = append(owners[addr], name)
			}
		}
	}
	for addr, names := range owners {
		for i, name := range names {
			var others []string
			for _, other := range slices.Delete(slices.Clone(names), i, i+1) {
				others = append(others, other.String())
			}
			v.addService(name, ClusterIPShared, "cluster IP %s is also that of %s", addr, some(others))
		}
	}
}

// healthCheckPorts finds those that another Service uses too.
func (v *view) healthCheckPorts() {
	users := map[uint16][]string{}
	for name, s := range v.snapshot.Services.All() {
		for _, port := range s.Ports {
			if port.NodePort != 0 && port.Protocol == cluster.TCP {
				users[port.NodePort] = append(users[port.NodePort], "the node port of "+name.String())
			}
		}
		if s.HealthCheckNodePort != 0 {
			users[s.HealthCheckNodePort] = append(users[s.HealthCheckNodePort], "the health check node port of "+name.String())
		}
	}
	for name, s := range v.snapshot.Services.All() {
		own := "the health check node port of " + name.String()
		if others := slices.DeleteFunc(slices.Clone(users[s.HealthCheckNodePort]), func(u string) bool { return u == own }); s.HealthCheckNodePort != 0 && len(others) > 0 {
			v.addService(name, HealthCheckShared, "health check node port %d is also %s", s.HealthCheckNodePort, some(others))
		}
	}
}

func (v *view) slicesWithoutService() {
	for _, unowned := range v.objects.builder.Unowned() {
		if v.objects.unserved[unowned.Service] {
			continue
		}
		for _, slice := range unowned.Slices {
			v.addSlice(unowned.Service.Namespace, slice.Name, SliceWithoutService, "it belongs to Service %s, which does not exist", unowned.Service)
		}
	}
}

// endpointAddresses finds endpoints that are the addresses of something else.
func (v *view) endpointAddresses() {
	balancers := map[netip.Addr]cluster.ServiceName{}
	pods := map[netip.Addr]string{} // namespaces of the endpoints in managed slices
	for name, s := range v.snapshot.Services.All() {
		for _, addr := range s.LoadBalancerIPs() {
			balancers[addr] = name
		}
		for _, slice := range s.Slices {
			if len(v.objects.manual) > 0 && !v.objects.manual[cluster.SliceName{Namespace: name.Namespace, Name: slice.Name}] {
				for i := range slice.Endpoints {
					pods[slice.Endpoints[i].Addr] = name.Namespace
				}
			}
		}
	}
	for name, s := range v.snapshot.Services.All() {
		for _, slice := range s.Slices {
			v.sliceAddresses(name, slice, balancers, pods)
		}
	}
}

func (v *view) sliceAddresses(name cluster.ServiceName, slice *cluster.EndpointSlice, balancers map[netip.Addr]cluster.ServiceName, pods map[netip.Addr]string) {
	var onService, ofOther []string
	manual := v.objects.manual[cluster.SliceName{Namespace: name.Namespace, Name: slice.Name}]
	for i := range slice.Endpoints {
		addr := slice.Endpoints[i].Addr
		owner, isBalancer := balancers[addr]
		_, isNode := v.nodes[addr]
		namespace, isPod := pods[addr]
		switch _, isClusterIP := v.plan.ClusterIPs.Get(addr); {
		case isClusterIP:
			onService = append(onService, fmt.Sprintf("%s is the cluster IP of %s", addr, v.clusters[addr]))
		case isBalancer:
			onService = append(onService, fmt.Sprintf("%s is a load balancer IP of %s", addr, owner))
		case within(v.snapshot.ServiceCIDRs, addr):
			onService = append(onService, fmt.Sprintf("%s is in a ServiceCIDR", addr))
		case manual && isPod && !isNode && namespace != name.Namespace:
			ofOther = append(ofOther, fmt.Sprintf("%s is an endpoint of namespace %s", addr, namespace))
		}
	}
	if len(onService) > 0 {
		v.addSlice(name.Namespace, slice.Name, EndpointOnService, "%s", some(onService))
	}
	if len(ofOther) > 0 {
		v.addSlice(name.Namespace, slice.Name, EndpointOfOther, "%s", some(ofOther))
	}
}

func (v *view) missingNodes() {
	for name, p := range v.objects.placed {
		if len(v.objects.nodes) > 0 && !v.objects.nodes[name] {
			v.Add(Finding{Code: EndpointNode, Kind: "Node", Name: name,
				Message: fmt.Sprintf("it does not exist, and %s in %s name it (first: %s)", terminal.Count(p.endpoints, "endpoint"), terminal.Count(p.slices, "EndpointSlice"), p.first)})
		}
	}
}

func within(ranges []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(addr) })
}

// frontendText describes a frontend as users know it.
func frontendText(r *plan.Route) string {
	if r.Frontend.IsNodePort() {
		return fmt.Sprintf("node port %d/%s", r.Frontend.Port, r.Frontend.Protocol)
	}
	return r.Kind.String() + " " + r.Frontend.String()
}

// endpointTexts lists the addresses of the endpoints that have a port.
func endpointTexts(s *cluster.Service, port *cluster.ServicePort) string {
	var texts []string
	for _, slice := range s.Slices {
		if _, has := slice.PortOf(port); has {
			for i := range slice.Endpoints {
				texts = append(texts, slice.Endpoints[i].Addr.String())
			}
		}
	}
	return some(texts)
}

// most bounds how many things a message lists.
const most = 5

// some joins distinct texts, and counts those beyond most.
func some(texts []string) string {
	var first []string
	distinct := map[string]bool{}
	for _, text := range texts {
		if !distinct[text] && len(first) < most {
			first = append(first, text)
		}
		distinct[text] = true
	}
	listed := strings.Join(first, ", ")
	if len(distinct) == len(first) {
		return listed
	}
	return fmt.Sprintf("%s and %d more", listed, len(distinct)-len(first))
}
