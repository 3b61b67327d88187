package plan

import (
	"cmp"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Port is one port of a Service in one address family.
type Port struct {
	Service cluster.ServiceName
	// Name is that of the port; it may be "".
	Name     string
	Protocol cluster.Protocol
	Family   cluster.Family
}

// Of returns the port that a route belongs to.
func (r *Route) Of() Port {
	return Port{Service: r.Service, Name: r.Port(), Protocol: r.Frontend.Protocol, Family: r.Frontend.Family()}
}

// Compare sorts by Service, name, protocol and family.
func (p Port) Compare(o Port) int {
	return cmp.Or(p.Service.Compare(o.Service), strings.Compare(p.Name, o.Name), cmp.Compare(p.Protocol, o.Protocol), cmp.Compare(p.Family, o.Family))
}

// String returns namespace/name:port/protocol, as users write it.
func (p Port) String() string { return PortName(p.Service, p.Name) + "/" + p.Protocol.String() }

// PortName returns namespace/name:port, or namespace/name for a port without a name.
func PortName(service cluster.ServiceName, port string) string {
	if port == "" {
		return service.String()
	}
	return service.String() + ":" + port
}

// PortText writes the name and protocol of a port, by which users know it; an empty name is "".
func PortText(name string, protocol cluster.Protocol) string {
	if name == "" {
		return `""/` + protocol.String()
	}
	return name + "/" + protocol.String()
}
