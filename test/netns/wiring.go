//go:build linux

package netns

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Names of interfaces inside the hosts.
const (
	// Uplink is the external interface of every host except the gateway.
	Uplink = "eth0"
	// Bridge is the bridge of a node to which its pods are connected.
	Bridge = "cbr0"
	// PodInterfacePrefix is the prefix of a node's interfaces to its pods.
	PodInterfacePrefix = "veth"
)

// build creates hosts, links, addresses and routes.
func (l *Lab) build(options Options) error {
	segment := [2]netip.Prefix{netip.MustParsePrefix("172.18.0.0/24"), netip.MustParsePrefix("fd00:172:18::/64")}
	var err error
	if l.Gateway, err = l.addHost("gateway", segment, 1); err != nil {
		return err
	}
	if l.patience, err = newPatience(l.Gateway); err != nil {
		return err
	}
	if err := l.Gateway.makeBridge("segment", segment, nil); err != nil {
		return err
	}
	if err := l.Gateway.swallow(); err != nil {
		return err
	}
	if l.Client, err = l.addToSegment("client", segment, 100); err != nil {
		return err
	}
	for number := range options.Nodes {
		node, err := l.addNode(number+1, segment, options)
		if err != nil {
			return err
		}
		l.nodes = append(l.nodes, node)
	}
	l.Node1, l.Node2 = l.nodes[0], l.nodes[1]
	for _, node := range l.Nodes() {
		for _, other := range l.Nodes() {
			if node != other {
				if err := node.RouteVia(other.Host, other.PodCIDRs...); err != nil {
					return err
				}
			}
		}
	}
	if err := l.Client.RouteVia(l.Node1.Host, options.ClientRoutes...); err != nil {
		return err
	}
	return settle(l.hosts, 5*time.Second)
}

// addHost creates a host without links: a namespace with a loopback. Its addresses
// are the number-th ones of the network's ranges.
func (l *Lab) addHost(name string, network [2]netip.Prefix, number int) (*Host, error) {
	host, err := newHost(name, l)
	if err != nil {
		return nil, fmt.Errorf("create the namespace of %s: %w", name, err)
	}
	l.hosts = append(l.hosts, host)
	host.IPv4, host.IPv6 = nth(network[0], number), nth(network[1], number)
	return host, host.tune()
}

// addToSegment creates a host on the segment, with the gateway as default route.
func (l *Lab) addToSegment(name string, segment [2]netip.Prefix, number int) (*Host, error) {
	host, err := l.addHost(name, segment, number)
	if err != nil {
		return nil, err
	}
	if err := l.Gateway.makeLink("to-"+name, "segment", host); err != nil {
		return nil, err
	}
	for i, address := range []netip.Addr{host.IPv4, host.IPv6} {
		if err := host.own(Uplink, netip.PrefixFrom(address, segment[i].Bits())); err != nil {
			return nil, err
		}
	}
	return host, host.RouteVia(l.Gateway, defaults()...)
}

// addNode creates a node on the segment, and its pods.
func (l *Lab) addNode(number int, segment [2]netip.Prefix, options Options) (*Node, error) {
	host, err := l.addToSegment(fmt.Sprintf("node%d", number), segment, 10+number)
	if err != nil {
		return nil, err
	}
	pods := [2]netip.Prefix{
		netip.MustParsePrefix(fmt.Sprintf("10.244.%d.0/24", number)),
		netip.MustParsePrefix(fmt.Sprintf("fd00:10:244:%d::/64", number)),
	}
	node := &Node{Host: host, PodCIDRs: pods[:]}
	if err := host.forward(); err != nil {
		return nil, err
	}
	if options.PodNetwork == Bridged {
		if err := host.filterBridged(); err != nil {
			return nil, err
		}
		// Without a fixed address the bridge would adopt that of each new port.
		mac := net.HardwareAddr{0x0a, 0x58, 10, 244, byte(number), 1}
		if err := host.makeBridge(Bridge, pods, mac); err != nil {
			return nil, err
		}
	}
	for i := range options.PodsPerNode {
		pod, err := l.addHost(fmt.Sprintf("pod%d%s", number, letters(i)), pods, 2+i)
		if err != nil {
			return nil, err
		}
		pod.Interface = PodInterfacePrefix + pod.Name
		if options.PodNetwork == Bridged {
			err = host.bridgePod(pod, pods)
		} else {
			err = host.routePod(pod)
		}
		if err != nil {
			return nil, fmt.Errorf("connect %s to %s: %w", pod.Name, host.Name, err)
		}
		node.Pods = append(node.Pods, pod)
	}
	return node, nil
}

// bridgePod connects a pod to the node's bridge.
func (h *Host) bridgePod(pod *Host, network [2]netip.Prefix) error {
	if err := h.makeLink(pod.Interface, Bridge, pod); err != nil {
		return err
	}
	for i, address := range []netip.Addr{pod.IPv4, pod.IPv6} {
		if err := pod.own(Uplink, netip.PrefixFrom(address, network[i].Bits())); err != nil {
			return err
		}
		if err := pod.route(defaults()[i], nth(network[i], 1), 0); err != nil {
			return err
		}
	}
	return nil
}

// routePod gives a pod its own link to the node. The pod's gateway is an address
// that no host has, with a neighbour entry for the node's end of the link.
func (h *Host) routePod(pod *Host) error {
	if err := h.makeLink(pod.Interface, "", pod); err != nil {
		return err
	}
	near, err := h.netlink.LinkByName(pod.Interface)
	if err != nil {
		return err
	}
	far, err := pod.netlink.LinkByName(Uplink)
	if err != nil {
		return err
	}
	gateways := []netip.Addr{netip.MustParseAddr("169.254.1.1"), netip.MustParseAddr("fe80::1")}
	for i, address := range []netip.Addr{pod.IPv4, pod.IPv6} {
		only := netip.PrefixFrom(address, address.BitLen())
		if err := pod.own(Uplink, only); err != nil {
			return err
		}
		if err := h.netlink.RouteReplace(&netlink.Route{LinkIndex: near.Attrs().Index, Dst: ipNet(only), Scope: unix.RT_SCOPE_LINK}); err != nil {
			return fmt.Errorf("route to the pod: %w", err)
		}
		neighbour := &netlink.Neigh{
			LinkIndex: far.Attrs().Index, State: netlink.NUD_PERMANENT,
			IP: gateways[i].AsSlice(), HardwareAddr: near.Attrs().HardwareAddr,
		}
		if err := pod.netlink.NeighSet(neighbour); err != nil {
			return fmt.Errorf("set the pod's gateway: %w", err)
		}
		if err := pod.route(defaults()[i], gateways[i], far.Attrs().Index); err != nil {
			return err
		}
	}
	return nil
}

// makeBridge creates a bridge with the first address of each range.
func (h *Host) makeBridge(name string, network [2]netip.Prefix, mac net.HardwareAddr) error {
	snooping := false
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.Flags, attrs.HardwareAddr = name, net.FlagUp, mac
	if err := h.netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snooping}); err != nil {
		return fmt.Errorf("create the bridge %s of %s: %w", name, h.Name, err)
	}
	for _, prefix := range network {
		if err := h.own(name, netip.PrefixFrom(nth(prefix, 1), prefix.Bits())); err != nil {
			return err
		}
	}
	return nil
}

// own adds an address of the host to an interface.
func (h *Host) own(name string, address netip.Prefix) error {
	return h.addAddress(name, &netlink.Addr{IPNet: ipNet(address)})
}

// swallow makes the host drop packets without a route, without an ICMP error.
func (h *Host) swallow() error {
	for _, everything := range defaults() {
		if err := h.netlink.RouteReplace(&netlink.Route{Dst: ipNet(everything), Type: unix.RTN_BLACKHOLE}); err != nil {
			return fmt.Errorf("add a blackhole route for %v on %s: %w", everything, h.Name, err)
		}
	}
	return nil
}

// makeLink connects this host to the uplink of another, with an interface of the
// given name, which becomes a port of the bridge if bridge is not empty.
func (h *Host) makeLink(name, bridge string, to *Host) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.Flags = name, net.FlagUp
	if bridge != "" {
		master, err := h.netlink.LinkByName(bridge)
		if err != nil {
			return fmt.Errorf("find the bridge %s of %s: %w", bridge, h.Name, err)
		}
		attrs.MasterIndex = master.Attrs().Index
	}
	link := &netlink.Veth{LinkAttrs: attrs, PeerName: Uplink, PeerNamespace: netlink.NsFd(to.namespace.Fd())}
	if err := h.netlink.LinkAdd(link); err != nil {
		return fmt.Errorf("create the link %s from %s to %s: %w", name, h.Name, to.Name, err)
	}
	if bridge == Bridge {
		// A pod may connect to itself through a Service: its packets leave the bridge
		// through the port on which they arrived.
		if err := h.netlink.LinkSetHairpin(link, true); err != nil {
			return fmt.Errorf("set hairpin mode on %s: %w", name, err)
		}
	}
	return to.up(Uplink)
}

// settle waits until all links and addresses are usable. As duplicate address
// detection is off, this takes some milliseconds.
func settle(hosts []*Host, within time.Duration) error {
	deadline := time.Now().Add(within)
	for _, host := range hosts {
		for {
			waiting, err := host.unsettled()
			if err != nil {
				return err
			}
			if waiting == "" {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("%s of %s was not ready within %v", waiting, host.Name, within)
			}
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

// defaults returns the two default routes, IPv4 first.
func defaults() []netip.Prefix {
	return []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}
}

// nth returns the n-th address of a range, for n up to 255.
func nth(prefix netip.Prefix, n int) netip.Addr {
	bytes := prefix.Masked().Addr().AsSlice()
	bytes[len(bytes)-1] += byte(n)
	address, _ := netip.AddrFromSlice(bytes)
	return address
}

// letters returns the suffix of a pod's name: a to z, then aa, ab and so on.
func letters(i int) string {
	if i < 26 {
		return string(rune('a' + i))
	}
	return letters(i/26-1) + letters(i%26)
}

// ipNet converts a prefix for the netlink library.
func ipNet(prefix netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
}
