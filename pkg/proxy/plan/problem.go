package plan

import (
	"fmt"
	"iter"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// The reasons why connections to a Service fail on this node, as commands and metrics name them.
const (
	ProblemNoSuchPort           = "NoSuchPort"
	ProblemNoEndpoints          = "NoEndpoints"
	ProblemNoLocalEndpoints     = "NoLocalEndpoints"
	ProblemExternalIPsNotServed = "ExternalIPsNotServed"
	ProblemTooLarge             = "TooLarge"
	// ProblemDelayed: the last change of the Service is not in force yet, because it is expensive and is programmed in parts.
	ProblemDelayed = "ChangeDelayed"
)

// Problem returns ProblemNoEndpoints or ProblemNoLocalEndpoints if the route leads to no endpoint, and otherwise "".
func (r *Route) Problem() string {
	switch {
	case r.Verdict == Balance:
		return ""
	case r.Reason() == NoLocalEndpoints:
		return ProblemNoLocalEndpoints
	default:
		return ProblemNoEndpoints
	}
}

// maxMissing bounds how many slices MissingPorts returns, and maxPorts how many ports it lists of each: the author of a
// Service may choose thousands of both.
const (
	maxMissing = 20
	maxPorts   = 5
)

// MissingPorts returns the slices of a Service that do not have one of the ports that are served, each as a sentence with the
// ports that the slice does have; the first few of many. It ignores slices without endpoints and those of other families.
func (p *Plan) MissingPorts(name cluster.ServiceName) iter.Seq[string] {
	return func(yield func(string) bool) {
		s, known := p.snapshot.Services.Get(name)
		decided, planned := p.Services.Get(name)
		if !known || !planned {
			return
		}
		found := 0
		for i := range s.Ports[:len(s.Ports)-int(decided.WithheldPorts)] {
			port := &s.Ports[i]
			for _, slice := range s.Slices {
				if !lacks(s, slice, port) {
					continue
				}
				if found++; found > maxMissing || !yield(fmt.Sprintf("EndpointSlice %s/%s has no port %s; it has %s",
					name.Namespace, slice.Name, PortText(port.Name, port.Protocol), portsText(slice.Ports))) {
					return
				}
			}
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
	if len(ports) == 0 {
		return "none"
	}
	var texts []string
	for _, port := range ports[:min(len(ports), maxPorts)] {
		texts = append(texts, PortText(port.Name, port.Protocol))
	}
	text := strings.Join(texts, ", ")
	if more := len(ports) - maxPorts; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
