package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/inspect"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// service asks a proxy for a Service; nil if it does not know it.
func service(ctx context.Context, c *inspect.Client, name cluster.ServiceName) (*v1alpha1.Service, error) {
	found, err := c.Service(ctx, name)
	if answered, ok := errors.AsType[*inspect.StatusError](err); ok && answered.Code == http.StatusNotFound {
		return nil, nil
	}
	return found, err
}

// differences lists how a node's Service differs from another one in facts. nil is a Service that is not known.
func differences(want, got *v1alpha1.Service, facts func(*v1alpha1.Service) map[string]string) (all []string) {
	switch {
	case got == nil && want == nil:
		return nil
	case got == nil:
		return []string{"does not know the Service"}
	case want == nil:
		return []string{"still knows the Service"}
	}
	wants, has := facts(want), facts(got)
	names := maps.Clone(wants)
	maps.Copy(names, has)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		expected, wanted := wants[name]
		found, known := has[name]
		switch {
		case !known:
			all = append(all, "lacks "+name)
		case !wanted:
			all = append(all, "still has "+name)
		case found != expected:
			all = append(all, fmt.Sprintf("has %s %s, not %s", name, found, expected))
		}
	}
	return all
}

// facts returns what all nodes know alike, whatever their configuration: addresses, ports, policies, and endpoints with their conditions.
// The names are those that a user reads.
func facts(s *v1alpha1.Service) map[string]string {
	all := map[string]string{
		"cluster IPs": strings.Join(s.ClusterIPs, ","), "load balancer IPs": strings.Join(s.LoadBalancerIPs, ","), "external IPs": strings.Join(s.ExternalIPs, ","),
		"source ranges": strings.Join(s.SourceRanges, ","), "internalTrafficPolicy": s.InternalTrafficPolicy, "externalTrafficPolicy": s.ExternalTrafficPolicy,
		"session affinity": fmt.Sprintf("of %d seconds", s.SessionAffinitySeconds),
	}
	if s.HealthCheck != nil {
		all["health check node port"] = fmt.Sprint(s.HealthCheck.Port)
	}
	for _, port := range s.Ports {
		all[fmt.Sprintf("port %d/%s", port.Port, port.Protocol)] = fmt.Sprintf("with name %q and node port %d", port.Name, port.NodePort)
		for i := range port.Endpoints {
			e := &port.Endpoints[i]
			var conditions []string
			for name, holds := range map[string]bool{"ready": e.Ready, "serving": e.Serving, "terminating": e.Terminating} {
				if holds {
					conditions = append(conditions, name)
				}
			}
			slices.Sort(conditions)
			all[endpointOf(&port, e)] = "that is " + strings.Join(conditions, ", ")
		}
	}
	for _, slice := range s.Slices { // of endpoints that are not listed, the number
		all["slice "+slice.Name] = fmt.Sprintf("with %d endpoints", slice.Endpoints)
	}
	return all
}

// shown returns the facts, and what only proxies that are configured to honour it show, or that older versions do not show.
func shown(s *v1alpha1.Service) map[string]string {
	all := facts(s)
	all["balancing"] = cmp.Or(s.Balancing, "at random")
	all["connection limits"] = cmp.Or(s.ConnectionLimits, "none")
	all["UDP flows"] = "that leave an endpoint that terminates"
	if s.PreservesUDPFlows {
		all["UDP flows"] = "that stay with an endpoint that terminates"
	}
	for _, port := range s.Ports {
		for i := range port.Endpoints {
			e := &port.Endpoints[i]
			name := endpointOf(&port, e)
			if e.Weight != nil {
				all[name] += fmt.Sprintf(", with weight %d", *e.Weight)
			}
			if len(e.Zones) > 0 {
				all[name] += ", for zones " + strings.Join(e.Zones, ",")
			}
		}
	}
	return all
}

func endpointOf(port *v1alpha1.Port, e *v1alpha1.Endpoint) string {
	return fmt.Sprintf("endpoint %s of slice %s for port %d/%s", e.Address, e.Slice, port.Port, port.Protocol)
}
