package check

import (
	"context"
	"net/netip"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
)

// Host is the machine that is checked. Reading it changes nothing.
type Host interface {
	// Setting reads a kernel setting by its path below /proc/sys; the error is fs.ErrNotExist if there is none.
	Setting(name string) (string, error)
	// Writable returns why this process cannot write a kernel setting; nil if it can.
	Writable(name string) error
	// Rules tries everything that the rules of the mode need, in a network namespace of its own.
	Rules(ctx context.Context) ([]Step, error)
	// Tools returns the versions of the programs that the mode runs.
	Tools(ctx context.Context) []backend.Tool
	// Variants returns the variants of iptables, nft and legacy, that have chains of Kubernetes.
	Variants(ctx context.Context) ([]string, error)
	// Chains returns the base chains of the hooks input and forward, those of iptables included.
	Chains(ctx context.Context) ([]Chain, error)
	// Holder returns who holds the lock on this network namespace, in words, and whether it answers; "" if no process does.
	Holder() (holder string, answers bool, err error)
	// Present returns the modes that have rules here, of any program.
	Present(ctx context.Context) ([]string, error)
	// Processes returns the ids of other processes called kube-proxy in this network namespace.
	Processes() ([]int, error)
	// Listen listens on a TCP address for a moment.
	Listen(address string) error
	// Get reads a page of an HTTP server of this node.
	Get(ctx context.Context, address, path string) (status int, body string, err error)
	// Interfaces returns the addresses of this machine.
	Interfaces() ([]netip.Addr, error)
}

// Step is something that the rules of a mode need.
type Step struct {
	// Name is such as "masquerading (IPv4)", Module the kernel module that has it; "" if that is unknown.
	Name, Module string
	// Error is why it does not work; "" if it does.
	Error string
}

// Chain is a chain of a packet filter, of any program.
type Chain struct {
	// Name is such as "inet firewalld filter_FORWARD", Hook is input or forward.
	Name, Hook string
	// Drops means that the chain drops what no rule of it accepts.
	Drops bool
	Rules int
}

// API is what is asked of an API server.
type API interface {
	// Allowed reports whether this proxy's user has a right.
	Allowed(ctx context.Context, right Right) (bool, error)
	// NodeAddresses returns the addresses of a Node; found is false if there is no such Node.
	NodeAddresses(ctx context.Context, name string) (addrs []netip.Addr, found bool, err error)
	// HealthCheckNodePorts returns those of all Services.
	HealthCheckNodePorts(ctx context.Context) ([]uint16, error)
}

// Right is a verb for a resource.
type Right struct {
	Verb, Group, Resource string
}
