package status

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// WhyNotServed lists the reasons why a Service is not in the snapshot.
const WhyNotServed = "it does not exist, or it is headless, of type ExternalName, or for another proxy"

// Reasons returns the reasons of problems, each once.
func Reasons(problems []v1alpha1.Problem) (reasons []string) {
	for _, problem := range problems {
		if !slices.Contains(reasons, problem.Reason) {
			reasons = append(reasons, problem.Reason)
		}
	}
	return reasons
}

// Port formats a port as kubectl does: 80:30080/TCP, or 80/TCP without a node port.
func Port(p v1alpha1.Port) string {
	if p.NodePort != 0 {
		return fmt.Sprintf("%d:%d/%s", p.Port, p.NodePort, p.Protocol)
	}
	return fmt.Sprintf("%d/%s", p.Port, p.Protocol)
}

// Ports formats the ports of a Service.
func Ports(s *v1alpha1.Service) (texts []string) {
	for _, port := range s.Ports {
		texts = append(texts, Port(port))
	}
	return texts
}

// Address formats an address of a port: IP:port, or for a node port its number and the IP family.
func Address(a v1alpha1.Address) string {
	if a.Kind != kinds[plan.NodePort] {
		return net.JoinHostPort(a.Address, strconv.Itoa(int(a.Port)))
	}
	family := cluster.IPv4
	if strings.Contains(a.Address, ":") {
		family = cluster.IPv6
	}
	return fmt.Sprintf("node:%d (%s)", a.Port, family)
}

// Where formats the location of an endpoint.
func Where(location string) string {
	return cmp.Or(map[string]string{v1alpha1.LocationThisNode: "this node", v1alpha1.LocationOtherNode: "elsewhere", v1alpha1.LocationUnknown: "unknown"}[location], location)
}

// Phase formats the state of an endpoint with open connections.
func Phase(state string) string {
	return cmp.Or(map[string]string{v1alpha1.EndpointReady: "ready", v1alpha1.EndpointNotReady: "not ready", v1alpha1.EndpointTerminating: "terminating",
		v1alpha1.EndpointTerminatingServing: "terminating, serving", v1alpha1.EndpointGone: "gone: no EndpointSlice lists it"}[state], state)
}

// Ago formats how long ago a time was, as kubectl does.
func Ago(now, at time.Time) string {
	d := max(0, now.Sub(at))
	switch {
	case d < time.Minute:
		return d.Truncate(time.Second).String()
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
	}
}

// EndpointState formats the conditions of an endpoint.
func EndpointState(e *v1alpha1.Endpoint) string {
	switch {
	case e.Terminating && e.Serving:
		return "terminating"
	case e.Terminating:
		return "terminated"
	case e.Ready:
		return "ready"
	default:
		return "not ready"
	}
}

// Fact is a property of a Service in words.
type Fact struct {
	Name   string
	Values []string
}

// Facts returns the properties of a Service that are set. Its cluster IPs, EndpointSlices and, with node ports, their addresses are among
// them even if it has none.
func Facts(s *v1alpha1.Service) []Fact {
	all := []Fact{{"Cluster IPs", s.ClusterIPs}}
	add := func(name string, set bool, values ...string) {
		if set {
			all = append(all, Fact{name, values})
		}
	}
	add("Load balancer IPs", len(s.LoadBalancerIPs) > 0, s.LoadBalancerIPs...)
	add("External IPs", len(s.ExternalIPs) > 0, s.ExternalIPs...)
	add("Source ranges", len(s.SourceRanges) > 0, s.SourceRanges...)
	add("Node ports on", slices.ContainsFunc(s.Ports, func(p v1alpha1.Port) bool { return p.NodePort != 0 }), s.NodePortAddresses...)
	add("Traffic policy", true, "internal "+s.InternalTrafficPolicy, "external "+s.ExternalTrafficPolicy)
	add("Session affinity", s.SessionAffinitySeconds > 0, fmt.Sprintf("ClientIP, for %s after the last connection", time.Duration(s.SessionAffinitySeconds)*time.Second))
	add("Balancing", s.Balancing != "", s.Balancing)
	add("Connection limits", s.ConnectionLimits != "", s.ConnectionLimits)
	add("UDP flows", s.PreservesUDPFlows, "stay with an endpoint until it has terminated")
	add("Fast path", s.FastPath, fmt.Sprintf("for forwarded connections, after %d packets", plan.FastPathAfter))
	var names []string
	for _, slice := range s.Slices {
		names = append(names, slice.Name)
	}
	add("EndpointSlices", true, names...)
	add("Endpoints not listed", s.EndpointsNotListed > 0, strconv.Itoa(s.EndpointsNotListed)+" entries of all ports together")
	if s.HealthCheck != nil {
		values := []string{fmt.Sprintf("port %d", s.HealthCheck.Port)}
		for _, family := range slices.Sorted(maps.Keys(s.HealthCheck.LocalEndpoints)) {
			values = append(values, fmt.Sprintf("%d ready on this node in %s", s.HealthCheck.LocalEndpoints[family], family))
		}
		add("Health check", true, values...)
	}
	return all
}
