//go:build linux

package netif

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/host"
)

// WhyNotForwarded returns why the kernel does not send a packet on that has passed hook prerouting, or output if the name of its input
// interface is empty: the answer of the kernel's own lookup of the route, or a setting of the interface, with what changes it. It is ""
// if neither prevents that now.
func (Kernel) WhyNotForwarded(source, destination netip.Addr, in string, mark uint32) string {
	if port := withoutHairpin(source, destination, in); port != "" {
		return fmt.Sprintf("hairpin mode is off on %s, the port of bridge %s that the packet came from and has to go back through (bridge link set dev %s hairpin on)", port, in, port)
	}
	options := &netlink.RouteGetOptions{Mark: mark}
	command := fmt.Sprintf("ip route get %s", destination)
	forwarding := "net/ipv4/conf/" + in + "/forwarding"
	if destination.Is6() {
		forwarding, command = "net/ipv6/conf/all/forwarding", strings.Replace(command, "ip", "ip -6", 1)
	}
	if in != "" {
		options.Iif, options.SrcAddr = in, net.IP(source.AsSlice())
		command += fmt.Sprintf(" from %s iif %s", source, in)
	}
	routes, err := netlink.RouteGetWithOptions(net.IP(destination.AsSlice()), options)
	local := err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL
	switch {
	case in != "" && !local && !errors.Is(err, unix.ENETUNREACH) && off(forwarding):
		return fmt.Sprintf("forwarding is off (sysctl -w %s=1)", sysctl(forwarding))
	// Linux 6.13 and later report EINVAL for this too.
	case errors.Is(err, unix.EXDEV), errors.Is(err, unix.EINVAL) && in != "" && (!off("net/ipv4/conf/all/rp_filter") || !off("net/ipv4/conf/"+in+"/rp_filter")):
		return fmt.Sprintf("the check of the source refuses it: packets to %s would leave by another interface than %s (sysctl %s and net.ipv4.conf.all.rp_filter; %s)",
			source, in, sysctl("net/ipv4/conf/"+in+"/rp_filter"), command)
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
		return fmt.Sprintf("this node has no route to %s (%s)", destination, command)
	case err != nil:
		return fmt.Sprintf("the lookup of the route fails: %v (%s)", err, command)
	}
	return ""
}

// sysctl returns the name by which sysctl(8) knows a file below /proc/sys: with dots, and a slash for each dot of an interface's name.
func sysctl(file string) string { return strings.NewReplacer("/", ".", ".", "/").Replace(file) }

// off reports whether a switch below /proc/sys is 0.
func off(file string) bool {
	value, err := host.Kernel{}.Read(file)
	return err == nil && value == "0"
}

// withoutHairpin returns the name of a port of a bridge that sends nothing back to where it came from, if that is the way of a packet:
// from an address of a neighbour on the bridge to the same address. It is "" otherwise, and if it cannot be read.
func withoutHairpin(source, destination netip.Addr, bridge string) string {
	if source != destination || bridge == "" {
		return ""
	}
	link, err := netlink.LinkByName(bridge)
	if err != nil {
		return ""
	}
	family := unix.AF_INET
	if source.Is6() {
		family = unix.AF_INET6
	}
	neighbours, _ := netlink.NeighList(link.Attrs().Index, family)
	stations, _ := netlink.NeighList(0, unix.AF_BRIDGE)
	for _, n := range neighbours {
		if addr, _ := netip.AddrFromSlice(n.IP); addr.Unmap() != source || len(n.HardwareAddr) == 0 {
			continue
		}
		for _, s := range stations {
			if s.MasterIndex != link.Attrs().Index || !bytes.Equal(s.HardwareAddr, n.HardwareAddr) {
				continue
			}
			port, err := netlink.LinkByIndex(s.LinkIndex)
			if err != nil {
				continue
			}
			if info, err := netlink.LinkGetProtinfo(port); err == nil && !info.Hairpin {
				return port.Attrs().Name
			}
		}
	}
	return ""
}
