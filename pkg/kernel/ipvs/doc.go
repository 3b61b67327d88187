// Package ipvs lists, quiesces and deletes the kernel objects that kube-proxy's ipvs mode uses besides iptables: virtual servers
// (ip_vs), sets of addresses (ip_set), and a dummy device with the Services' addresses. It cannot create any. It uses
// generic netlink, nfnetlink, rtnetlink and sock_diag.
//
// A kernel without one of the modules has no such objects. Listing them does not load the module.
package ipvs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
)

// ErrBusy means that a rule uses the set.
var ErrBusy = errors.New("a rule still uses it")

// Server is a virtual server, without its destinations.
type Server struct {
	// Protocol is a number from /etc/protocols.
	Protocol uint8
	Addr     netip.AddrPort
}

// String returns, for example, "protocol 6, 10.96.0.1:443".
func (s Server) String() string { return fmt.Sprintf("protocol %d, %s", s.Protocol, s.Addr) }

// Destination is where a virtual server sends connections.
type Destination struct {
	Addr netip.AddrPort
	// Weight is its share of the new connections; a destination without one keeps those that it has.
	Weight uint32
	// Connections is the number of connections, including those that end, and UDP flows.
	Connections uint32

	attributes string // what else the kernel must be given to change it
}

// Set is a set of addresses or ports. Ports are those of its elements that have one.
type Set struct {
	Name  string
	Ports []uint16
}

// Objects are the objects of one network namespace.
type Objects interface {
	// Servers returns the virtual servers that have an address.
	Servers() ([]Server, error)
	// DeleteServer deletes a virtual server with its destinations. A missing one is not an error.
	DeleteServer(s Server) error
	// Destinations returns the destinations of a virtual server.
	Destinations(s Server) ([]Destination, error)
	// Quiesce sets the weight of a destination to 0. A missing one is not an error.
	Quiesce(s Server, d Destination) error
	// Sets returns the sets whose name is wanted, with their ports.
	Sets(wanted func(name string) bool) ([]Set, error)
	// DeleteSet deletes a set. The error is [ErrBusy] if a rule uses it; a missing set is not an error.
	DeleteSet(name string) error
	// Device returns the addresses of a dummy device; exists is false if there is no dummy device of that name.
	Device(name string) (addrs []netip.Addr, exists bool, err error)
	// DeleteAddr deletes an address of a dummy device. A missing one is not an error.
	DeleteAddr(device string, addr netip.Addr) error
	// SetSource makes this machine's new connections to addresses of a dummy device come from the machine's address towards its
	// default route, if it has one, instead of from the device's address itself. It replaces the local route to the address, which no
	// other device may have. The error is that of the first address that fails.
	SetSource(ctx context.Context, device string, addrs []netip.Addr) error
	// DeleteRoutes deletes the routes of SetSource, except those to some addresses.
	DeleteRoutes(except map[netip.Addr]bool) error
	// DeleteDevice deletes a dummy device. A missing one is not an error.
	DeleteDevice(name string) error
	// Bound returns the local addresses of the open connections of this machine's own sockets, of those protocols that the kernel can list.
	Bound() (map[netip.Addr]bool, error)
	// Elsewhere returns the addresses of all devices except a dummy device.
	Elsewhere(device string) ([]netip.Addr, error)
}
