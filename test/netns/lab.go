//go:build linux

package netns

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// PodNetwork is how the pods of a node are wired to it.
type PodNetwork int

const (
	// Bridged hangs the pods on the bridge cbr0, as kubenet and the bridge CNI
	// plugin do: the node sees their packets arrive on cbr0.
	Bridged PodNetwork = iota
	// Routed gives every pod a point-to-point link, as Calico and others do: the
	// node sees its packets arrive on [Host.Interface], and has no pod address.
	Routed
)

// Options describe a laboratory; the zero value is the drawing in the package's
// comment.
type Options struct {
	// PodsPerNode is 2 when it is 0, and at most 200.
	PodsPerNode int
	// PodNetwork is Bridged by default.
	PodNetwork PodNetwork
	// ClientRoutes are the destinations that the client reaches through node1
	// (service ranges, load balancer addresses). More can be added later with
	// [Host.RouteVia].
	ClientRoutes []netip.Prefix
}

// Node is a machine of the cluster: a host that forwards for its pods.
type Node struct {
	*Host
	// Pods of this node, in the order of their names.
	Pods []*Host
	// PodCIDRs are the pods' ranges, IPv4 first.
	PodCIDRs []netip.Prefix
}

// Lab is a running laboratory. Its fields are not to be changed.
type Lab struct {
	// Client is outside the cluster, on the nodes' segment.
	Client *Host
	// Gateway is the segment's switch and everybody's default route. It forwards
	// nothing: what leaves the cluster ends here in silence, unless a test gives
	// it an address ([Host.AddAddress]) and a server.
	Gateway *Host
	// Node1 and Node2 are the cluster.
	Node1, Node2 *Node

	hosts    []*Host
	launcher *launcher
	patience *patience
	closing  sync.Once
	closed   error
}

// New builds a laboratory. It is ready for packets when New returns; the caller
// must Close it. See [Start] for tests.
func New(options Options) (*Lab, error) {
	if options.PodsPerNode == 0 {
		options.PodsPerNode = 2
	}
	if options.PodsPerNode < 1 || options.PodsPerNode > 200 {
		return nil, fmt.Errorf("%d pods per node: use 1 to 200", options.PodsPerNode)
	}
	lab := &Lab{launcher: newLauncher()}
	if err := lab.build(options); err != nil {
		return nil, errors.Join(err, lab.Close())
	}
	return lab, nil
}

// Hosts are all hosts of the laboratory: gateway, client, nodes and pods.
func (l *Lab) Hosts() []*Host { return slices.Clone(l.hosts) }

// Nodes are the two nodes.
func (l *Lab) Nodes() []*Node { return []*Node{l.Node1, l.Node2} }

// Host finds a host by its name: "gateway", "client", "node1", "node2", or a pod
// such as "pod1a", the first one of node1. The error lists the names there are.
func (l *Lab) Host(name string) (*Host, error) {
	var names []string
	for _, host := range l.hosts {
		if host.Name == name {
			return host, nil
		}
		names = append(names, host.Name)
	}
	return nil, fmt.Errorf("no host %q in the laboratory: it has %s", name, strings.Join(names, ", "))
}

// After calls f once the machine has kept pace for d, as probes wait: time in which it delivered packets late does not
// count, up to twenty times d. After stop has returned, f is not running and will not be called.
func (l *Lab) After(d time.Duration, f func()) (stop func()) { return l.patience.after(d, f) }

// Close ends the processes and servers started in the laboratory and removes it.
// It may be called again, and by several goroutines.
func (l *Lab) Close() error {
	l.closing.Do(func() {
		var errs []error
		for _, host := range l.hosts {
			errs = append(errs, host.endProcesses())
		}
		for _, host := range l.hosts {
			errs = append(errs, host.close())
		}
		l.launcher.stop()
		if l.patience != nil {
			l.patience.stop()
		}
		l.closed = errors.Join(errs...)
	})
	return l.closed
}
