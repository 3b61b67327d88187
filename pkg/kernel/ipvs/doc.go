// Package ipvs is the door to the kernel objects that kube-proxy's ipvs mode uses beside iptables: virtual servers (ip_vs),
// sets of addresses (ip_set), and a dummy device with the Services' addresses. It lists and deletes them, and cannot
// make any. It speaks generic netlink, nfnetlink and rtnetlink, and has a fake for tests.
//
// A kernel without one of the modules has no such objects, and asking for them loads no module.
package ipvs

import (
	"errors"
	"fmt"
	"net/netip"
)

// ErrBusy reports that a set is still used by a rule.
var ErrBusy = errors.New("a rule still uses it")

// Server is a virtual server, without its destinations.
type Server struct {
	// Protocol is a number of /etc/protocols.
	Protocol uint8
	Addr     netip.AddrPort
}

// String is such as "protocol 6, 10.96.0.1:443".
func (s Server) String() string { return fmt.Sprintf("protocol %d, %s", s.Protocol, s.Addr) }

// Set is a set of addresses, or of ports.
type Set struct {
	Name    string
	Entries []Entry
}

// Entry is an element of a Set; what its set has no place for is zero.
type Entry struct {
	Protocol uint8
	Addr     netip.AddrPort
}

// Objects are the objects of one network namespace.
type Objects interface {
	// Servers lists the virtual servers that have an address.
	Servers() ([]Server, error)
	// DeleteServer deletes a virtual server with its destinations. That there is none is no error.
	DeleteServer(s Server) error
	// Sets lists the sets that have a wanted name, with their entries.
	Sets(wanted func(name string) bool) ([]Set, error)
	// DeleteSet deletes a set. The error is [ErrBusy] where a rule uses it; that there is none is no error.
	DeleteSet(name string) error
	// Device lists the addresses of a dummy device; exists is false where there is no device of that name and kind.
	Device(name string) (addrs []netip.Addr, exists bool, err error)
	// DeleteDevice deletes a dummy device. That there is none is no error.
	DeleteDevice(name string) error
	// LocalAddrs lists the addresses of all devices.
	LocalAddrs() ([]netip.Addr, error)
}
