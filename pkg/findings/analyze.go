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
		v.service(s, decided)
		v.addresses(s, decided)
	}
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

// service finds why connections to a Service fail, in the words of plan.Problems.
func (v *view) service(s *cluster.Service, decided *plan.Service) {
	for _, problem := range v.plan.Problems(s.Name, nil) {
		message := strings.ReplaceAll(problem.Message, "this node", "every node") // see everyNode
		f := Finding{Code: Code(problem.Reason), Kind: "Service", Namespace: s.Name.Namespace, Name: s.Name.Name, Message: message}
		if f.Code == plan.ProblemNoEndpoints && len(s.Slices) > 0 && !slices.ContainsFunc(s.Slices, hasEndpoints) {
			f.Severity = Info
		}
		v.Add(f)
	}
	var terminating []string
	for _, route := range decided.Routes {
		if reason := route.Reason(); reason == plan.AllTerminating || reason == plan.LocalTerminating {
			terminating = append(terminating, route.Address())
		}
	}
	if len(terminating) > 0 {
		v.addService(s.Name, OnlyTerminating, "%s: no endpoint is ready; connections go to those that still serve while terminating", some(terminating))
	}
}

func hasEndpoints(slice *cluster.EndpointSlice) bool { return len(slice.Endpoints) > 0 }

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
			v.addService(name, ClusterIPShared, "cluster IP %s is also that of %s", addr, some(slices.Delete(slices.Clone(names), i, i+1)))
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
				Message: fmt.Sprintf("it does not exist, and is named by %s in %s (first: %s)", terminal.Count(p.endpoints, "endpoint"), terminal.Count(p.slices, "EndpointSlice"), p.first)})
		}
	}
}

func within(ranges []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(addr) })
}

// most bounds how many things a message lists.
const most = 5

// some joins the texts of distinct values, and counts those beyond most.
func some[T any](values []T) string {
	var first []string
	distinct := map[string]bool{}
	for _, value := range values {
		text := fmt.Sprint(value)
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
