package packets

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft/trace"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/status"
)

// PerSecond is the number of packets that are traced in a second at most, in each IP family: enough to read, and few enough that
// the kernel's reports of them cost a busy node nothing.
const PerSecond = 20

// Target is what a user wants to trace.
type Target struct {
	// The zero Destination is all.
	status.Destination
	// From are the sources; the zero Prefix is all.
	From netip.Prefix
	// Opening leaves out the segments of TCP that do not open a connection.
	Opening bool
}

// ParseTarget parses NAMESPACE/NAME[:PORT[/PROTOCOL]], or ADDRESS[:PORT[/PROTOCOL]], and the sources as a CIDR or an address. One
// of both may be empty.
func ParseTarget(to, from string) (t Target, err error) {
	if t.From, err = parseSource(from); err != nil {
		return Target{}, err
	}
	if to == "" {
		if from == "" {
			return Target{}, fmt.Errorf("nothing to trace: name a Service as NAMESPACE/NAME, an address as ADDRESS[:PORT[/PROTOCOL]], or sources with --from")
		}
		return t, nil
	}
	if t.Destination, err = status.ParseDestination(to); err != nil {
		return Target{}, err
	}
	if addr := t.To.Addr(); addr.IsValid() && t.From.IsValid() && t.From.Addr().Is4() != addr.Is4() {
		return Target{}, fmt.Errorf("%s and %s are of different IP families: no packet has both", t.From, addr)
	}
	return t, nil
}

func parseSource(text string) (netip.Prefix, error) {
	if text == "" {
		return netip.Prefix{}, nil
	}
	prefix, err := netip.ParsePrefix(text)
	if addr, failed := netip.ParseAddr(text); err != nil && failed == nil {
		prefix, err = netip.PrefixFrom(addr.WithZone(""), addr.BitLen()), nil
	}
	if err != nil || prefix.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("--from %q is neither a CIDR nor an address", text)
	}
	return prefix.Masked(), nil
}

// Reader reads Services as a proxy serves them. It is that part of an inspect.Reader.
type Reader interface {
	// Services returns those that a filter selects, Service one with its endpoints.
	Services(ctx context.Context, f status.Filter, connections bool) (*v1alpha1.ServiceList, error)
	Service(ctx context.Context, name cluster.ServiceName) (*v1alpha1.Service, error)
}

// Resolve returns what the kernel has to trace for a target, and the names for its packets. nodePorts are the addresses on which node
// ports are served.
func (t *Target) Resolve(ctx context.Context, from Reader, nodePorts []string) (trace.Filter, *Names, error) {
	filter := trace.Filter{From: t.From, Opening: t.Opening, PerSecond: PerSecond}
	if t.Service.Name != "" {
		service, err := from.Service(ctx, t.Service)
		if err != nil {
			return filter, nil, err
		}
		filter.To, err = t.destinations(service)
		return filter, NewNames(nodePorts, *service), err
	}
	if t.To.IsValid() {
		filter.To = []trace.Destination{{Addr: t.To.Addr(), Protocol: byte(t.Protocol), Port: t.To.Port()}}
	}
	var having status.Filter
	if t.To.IsValid() && !slices.Contains(nodePorts, t.To.Addr().String()) {
		having.Address = t.To.Addr()
	}
	services, err := from.Services(ctx, having, false)
	if err == nil && t.Port != "" {
		filter.To, err = t.named(services.Items)
	}
	if err != nil {
		return filter, nil, err
	}
	if having.Address.IsValid() {
		for i, s := range services.Items { // with their endpoints
			if whole, err := from.Service(ctx, cluster.ServiceName{Namespace: s.Namespace, Name: s.Name}); err == nil {
				services.Items[i] = *whole
			}
		}
	}
	return filter, NewNames(nodePorts, services.Items...), nil
}

// named are the ports of an address that have the target's name.
func (t *Target) named(services []v1alpha1.Service) (all []trace.Destination, _ error) {
	for i := range services {
		to, err := t.destinations(&services[i])
		if err == nil { // otherwise it has no such port
			all = append(all, slices.DeleteFunc(to, func(d trace.Destination) bool { return d.Addr != t.To.Addr() })...)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no port %s: give its number", t.To.Addr(), t.Port)
	}
	return all, nil
}

// destinations are a Service's addresses.
func (t *Target) destinations(s *v1alpha1.Service) (all []trace.Destination, _ error) {
	found := false
	for _, port := range s.Ports {
		if t.Port != "" && t.Port != port.Name && t.Port != strconv.Itoa(int(port.Port)) || t.Protocol != 0 && t.Protocol.String() != port.Protocol {
			continue
		}
		found = true
		protocol, _ := cluster.ParseProtocol(port.Protocol)
		for _, a := range port.Addresses {
			addr, err := netip.ParseAddr(a.Address)
			if err != nil {
				return nil, fmt.Errorf("the proxy reports an address of %s/%s that is none: %w", s.Namespace, s.Name, err)
			}
			to := trace.Destination{Addr: addr, Protocol: byte(protocol), Port: a.Port}
			if !slices.Contains(all, to) && (!t.From.IsValid() || t.From.Addr().Is4() == addr.Is4()) {
				all = append(all, to)
			}
		}
	}
	switch {
	case !found:
		port := t.Port
		if t.Protocol != 0 {
			port = strings.Trim(port+"/"+strings.ToLower(t.Protocol.String()), "/")
		}
		return nil, fmt.Errorf("Service %s/%s has no port %s; \"kube-proxy service describe %s/%s\" lists its ports", s.Namespace, s.Name, port, s.Namespace, s.Name)
	case len(all) == 0 && t.From.IsValid():
		return nil, fmt.Errorf("Service %s/%s has no address of the IP family of %s", s.Namespace, s.Name, t.From)
	case len(all) == 0:
		return nil, fmt.Errorf("Service %s/%s has no address", s.Namespace, s.Name)
	}
	return all, nil
}
