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

// PodNetwork is how the pods of a node are connected to it.
type PodNetwork int

const (
	// Bridged connects the pods to the bridge cbr0, like kubenet and the bridge CNI
	// plugin: their packets arrive at the node on cbr0.
	Bridged PodNetwork = iota
	// Routed gives every pod a point-to-point link, like Calico and others: its
	// packets arrive at the node on [Host.Interface], and the node has no address in
	// the pod's range.
	Routed
)

// Options describe a lab; the zero value is the diagram in the package comment.
type Options struct {
	// Nodes is 2 to 9; 0 means 2.
	Nodes int
	// PodsPerNode is at most 200; 0 means 2.
	PodsPerNode int
	// PodNetwork is Bridged by default.
	PodNetwork PodNetwork
	// ClientRoutes are the destinations that the client reaches through node1, such
	// as service ranges and load balancer addresses. [Host.RouteVia] adds more.
	ClientRoutes []netip.Prefix
}

// Node is a node of the cluster: a host that forwards packets of its pods.
type Node struct {
	*Host
	// Pods are the pods of this node, in the order of their names.
	Pods []*Host
	// PodCIDRs are the pods' ranges, IPv4 first.
	PodCIDRs []netip.Prefix
}

// Lab is a running lab. Its fields must not be changed.
type Lab struct {
	// Client is outside the cluster, on the nodes' segment.
	Client *Host
	// Gateway is the segment's switch and the default route of all hosts. It forwards
	// nothing: it drops packets that leave the cluster, unless a test gives it their
	// destination address ([Host.AddAddress]) and a server.
	Gateway *Host
	// Node1 and Node2 are the first two nodes of the cluster.
	Node1, Node2 *Node

	nodes    []*Node
	hosts    []*Host
	launcher *launcher
	patience *patience
	closing  sync.Once
	closed   error
}

// New builds a lab, which is ready for packets when New returns. The caller must
// Close it. Tests use [Start].
func New(options Options) (*Lab, error) {
	if options.Nodes == 0 {
		options.Nodes = 2
	}
	if options.Nodes < 2 || options.Nodes > 9 {
		return nil, fmt.Errorf("%d nodes: use 2 to 9", options.Nodes)
	}
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

// Hosts returns all hosts of the lab: gateway, client, nodes and pods.
func (l *Lab) Hosts() []*Host { return slices.Clone(l.hosts) }

// Nodes returns all nodes.
func (l *Lab) Nodes() []*Node { return slices.Clone(l.nodes) }

// Host returns a host by its name: "gateway", "client", "node1", "node2", or a pod
// such as "pod1a", the first one of node1. The error lists the valid names.
func (l *Lab) Host(name string) (*Host, error) {
	var names []string
	for _, host := range l.hosts {
		if host.Name == name {
			return host, nil
		}
		names = append(names, host.Name)
	}
	return nil, fmt.Errorf("no host %q in the lab: it has %s", name, strings.Join(names, ", "))
}

// After calls f after d, measured like the timeout of a probe: time in which the machine is overloaded and delivers packets
// late does not count, up to twenty times d. After stop has returned, f is not running and will not be called.
func (l *Lab) After(d time.Duration, f func()) (stop func()) { return l.patience.after(d, f) }

// Close stops the processes and servers of the lab and removes it. It may be called
// several times and by several goroutines.
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
