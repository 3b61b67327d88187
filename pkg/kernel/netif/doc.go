// Package netif is the door to the addresses of the machine's network interfaces: which there are, and when
// they change. It speaks rtnetlink (rtnetlink(7)) and has a fake for tests.
package netif

import (
	"context"
	"net/netip"
)

// Interfaces tells what addresses the machine bears. Kernel is the real one, Fake one for tests.
type Interfaces interface {
	// Addrs lists the addresses of all interfaces, sorted, each once: of both families, loopback included,
	// IPv6 link-local ones and those that failed duplicate address detection left out, for nobody can reach
	// the machine by them without naming a link, or at all.
	Addrs() ([]netip.Addr, error)
	// NodeAddrs lists the addresses that other machines may know this one by: global unicast ones of
	// interfaces other than loopback. First comes the one of each family, IPv4 before IPv6, that the kernel
	// uses towards the default route, then the others in order.
	NodeAddrs() ([]netip.Addr, error)
	// Watch gives a channel that receives a value after addresses may have changed, until ctx ends. Several
	// changes may give one value. What happens after Watch returned is not missed.
	Watch(ctx context.Context) <-chan struct{}
}
