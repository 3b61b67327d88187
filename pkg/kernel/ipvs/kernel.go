//go:build linux

package ipvs

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/netif"
)

// Kernel is the objects in the calling thread's network namespace.
type Kernel struct{}

var _ Objects = Kernel{}

// Commands and attributes of linux/ip_vs.h.
const (
	genlFamily  = "IPVS"
	genlVersion = 1

	cmdDelService = 3
	cmdGetService = 4
	cmdSetDest    = 6
	cmdGetDest    = 8

	attrService = 1
	attrDest    = 2

	serviceFamily   = 1
	serviceProtocol = 2
	serviceAddr     = 3
	servicePort     = 4

	destAddr     = 1
	destPort     = 2
	destForward  = 3
	destWeight   = 4
	destUpper    = 5
	destLower    = 6
	destActive   = 7
	destInactive = 8
	destFamily   = 11
)

// Servers is part of [Objects].
func (Kernel) Servers() ([]Server, error) {
	// The file exists if the module is loaded.
	if _, err := os.Stat("/proc/thread-self/net/ip_vs"); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	messages, err := execute(cmdGetService, unix.NLM_F_DUMP)
	if err != nil {
		return nil, fmt.Errorf("list the virtual servers (IPVS_CMD_GET_SERVICE): %w", err)
	}
	var servers []Server
	for _, message := range messages {
		for attrs := range attributes(contents(message), attrService) {
			if server, ok := parseServer(attrs); ok {
				servers = append(servers, server)
			}
		}
	}
	return servers, nil
}

// execute sends a request to the module, and returns the answer. A server or destination that is gone has none.
func execute(command uint8, flags int, attributes ...*nl.RtAttr) ([][]byte, error) {
	family, err := netlink.GenlFamilyGet(genlFamily)
	if err != nil {
		return nil, fmt.Errorf("find the generic netlink family %s: %w", genlFamily, err)
	}
	request := nl.NewNetlinkRequest(int(family.ID), flags)
	request.AddData(&nl.Genlmsg{Command: command, Version: genlVersion})
	for _, a := range attributes {
		request.AddData(a)
	}
	messages, err := request.Execute(unix.NETLINK_GENERIC, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	return messages, err
}

// contents returns a message without its header, which has the same size in all of these protocols.
func contents(message []byte) []byte { return message[min(len(message), nl.SizeofGenlmsg):] }

// attributes returns the values of the attributes of one type.
func attributes(list []byte, wanted uint16) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for attr := range nl.ParseAttributes(list) {
			if attr.Type&nl.NLA_TYPE_MASK == wanted && !yield(attr.Value) {
				return
			}
		}
	}
}

// parseServer reads the attributes of a server. ok is false for those with a firewall mark instead of an address.
func parseServer(attrs []byte) (server Server, ok bool) {
	var family, port uint16
	var addr []byte
	for attr := range nl.ParseAttributes(attrs) {
		switch attr.Type {
		case serviceFamily:
			family = binary.NativeEndian.Uint16(attr.Value)
		case serviceProtocol:
			server.Protocol = uint8(binary.NativeEndian.Uint16(attr.Value))
		case serviceAddr:
			addr = attr.Value
		case servicePort:
			port = binary.BigEndian.Uint16(attr.Value)
		}
	}
	server.Addr, ok = addrPort(family, addr, port)
	return server, ok
}

// addrPort returns an address; the kernel sends as many bytes for either family.
func addrPort(family uint16, addr []byte, port uint16) (netip.AddrPort, bool) {
	if family == unix.AF_INET && len(addr) > 4 {
		addr = addr[:4]
	}
	ip, ok := netip.AddrFromSlice(addr)
	return netip.AddrPortFrom(ip, port), ok
}

func (s Server) family() uint16 {
	if s.Addr.Addr().Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// attribute is the attribute that identifies a server.
func (s Server) attribute() *nl.RtAttr {
	service := nl.NewRtAttr(attrService|int(nl.NLA_F_NESTED), nil)
	service.AddRtAttr(serviceFamily, nl.Uint16Attr(s.family()))
	service.AddRtAttr(serviceProtocol, nl.Uint16Attr(uint16(s.Protocol)))
	service.AddRtAttr(serviceAddr, s.Addr.Addr().AsSlice())
	service.AddRtAttr(servicePort, binary.BigEndian.AppendUint16(nil, s.Addr.Port()))
	return service
}

// Destinations is part of [Objects].
func (Kernel) Destinations(s Server) ([]Destination, error) {
	messages, err := execute(cmdGetDest, unix.NLM_F_DUMP, s.attribute())
	if err != nil {
		return nil, fmt.Errorf("list the destinations of the virtual server %s (IPVS_CMD_GET_DEST): %w", s, err)
	}
	var all []Destination
	for _, message := range messages {
		for attrs := range attributes(contents(message), attrDest) {
			all = append(all, parseDestination(s, attrs))
		}
	}
	return all, nil
}

// parseDestination reads the attributes of a server's destination.
func parseDestination(s Server, attrs []byte) (d Destination) {
	family := s.family()
	var addr []byte
	var port uint16
	for attr := range nl.ParseAttributes(attrs) {
		switch attr.Type {
		case destAddr:
			addr = attr.Value
		case destPort:
			port = binary.BigEndian.Uint16(attr.Value)
		case destFamily:
			family = binary.NativeEndian.Uint16(attr.Value)
		case destWeight:
			d.Weight = binary.NativeEndian.Uint32(attr.Value)
		case destActive, destInactive:
			d.Connections += binary.NativeEndian.Uint32(attr.Value)
		}
		switch attr.Type {
		case destAddr, destPort, destFamily, destForward, destUpper, destLower:
			d.attributes += string(nl.NewRtAttr(int(attr.Type), attr.Value).Serialize())
		}
	}
	d.Addr, _ = addrPort(family, addr, port)
	return d
}

// Quiesce is part of [Objects].
func (Kernel) Quiesce(s Server, d Destination) error {
	weight := nl.NewRtAttr(destWeight, nl.Uint32Attr(0)).Serialize()
	destination := nl.NewRtAttr(attrDest|int(nl.NLA_F_NESTED), append(weight, d.attributes...))
	if _, err := execute(cmdSetDest, unix.NLM_F_ACK, s.attribute(), destination); err != nil {
		return fmt.Errorf("set the weight of %s of the virtual server %s (IPVS_CMD_SET_DEST): %w", d.Addr, s, err)
	}
	return nil
}

// DeleteServer is part of [Objects].
func (Kernel) DeleteServer(s Server) error {
	if _, err := execute(cmdDelService, unix.NLM_F_ACK, s.attribute()); err != nil {
		return fmt.Errorf("delete the virtual server %s (IPVS_CMD_DEL_SERVICE): %w", s, err)
	}
	return nil
}

// Sets is part of [Objects].
func (Kernel) Sets(wanted func(name string) bool) ([]Set, error) {
	// A request would load the module.
	if _, err := os.Stat("/sys/module/ip_set"); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	// The library's function logs each attribute that it does not know.
	messages, err := netif.Uninterrupted(func() ([][]byte, error) {
		request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_IPSET<<8|nl.IPSET_CMD_LIST, nl.GetIpsetFlags(nl.IPSET_CMD_LIST))
		request.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_NETLINK, Version: nl.NFNETLINK_V0})
		request.AddData(nl.NewRtAttr(nl.IPSET_ATTR_PROTOCOL, nl.Uint8Attr(nl.IPSET_PROTOCOL)))
		return request.Execute(unix.NETLINK_NETFILTER, 0)
	})
	if err != nil {
		return nil, fmt.Errorf("list the sets (IPSET_CMD_LIST): %w", err)
	}
	var sets []Set
	for _, message := range messages { // a large set takes several
		list := contents(message)
		for text := range attributes(list, nl.IPSET_ATTR_SETNAME) {
			switch name, last := nl.BytesToString(text), len(sets)-1; {
			case !wanted(name):
			case last >= 0 && sets[last].Name == name:
				sets[last].Ports = append(sets[last].Ports, setPorts(list)...)
			default:
				sets = append(sets, Set{name, setPorts(list)})
			}
		}
	}
	return sets, nil
}

// setPorts returns the ports of the elements in the attributes of a set.
func setPorts(list []byte) (ports []uint16) {
	for elements := range attributes(list, nl.IPSET_ATTR_ADT) {
		for element := range attributes(elements, nl.IPSET_ATTR_DATA) {
			for port := range attributes(element, nl.IPSET_ATTR_PORT) {
				ports = append(ports, binary.BigEndian.Uint16(port))
			}
		}
	}
	return ports
}

// DeleteSet is part of [Objects].
func (Kernel) DeleteSet(name string) error {
	err := netlink.IpsetDestroy(name)
	switch {
	case err == nil, errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, nl.IPSetError(nl.IPSET_ERR_BUSY)):
		err = ErrBusy
	}
	return fmt.Errorf("delete the set %s (IPSET_CMD_DESTROY): %w", name, err)
}

// Device is part of [Objects].
func (Kernel) Device(name string) (addrs []netip.Addr, exists bool, err error) {
	link, err := dummy(name)
	if err != nil || link == nil {
		return nil, false, err
	}
	addrs, err = addrsOf(func(index int) bool { return index == link.Attrs().Index })
	return addrs, true, err
}

// Elsewhere is part of [Objects].
func (Kernel) Elsewhere(device string) ([]netip.Addr, error) {
	link, err := dummy(device)
	if err != nil {
		return nil, err
	}
	return addrsOf(func(index int) bool { return link == nil || index != link.Attrs().Index })
}

// dummy returns a dummy device; nil if there is none.
func dummy(name string) (netlink.Link, error) {
	link, err := netlink.LinkByName(name)
	if _, missing := errors.AsType[netlink.LinkNotFoundError](err); missing {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find the device %s (RTM_GETLINK): %w", name, err)
	}
	if link.Type() != "dummy" {
		return nil, nil
	}
	return link, nil
}

// addrsOf returns the addresses of the devices with a wanted index.
func addrsOf(wanted func(index int) bool) ([]netip.Addr, error) {
	list, err := netif.Uninterrupted(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses (RTM_GETADDR): %w", err)
	}
	var addrs []netip.Addr
	for _, a := range list {
		if addr, ok := netip.AddrFromSlice(a.IP); ok && wanted(a.LinkIndex) {
			addrs = append(addrs, addr.Unmap())
		}
	}
	return addrs, nil
}

// DeleteDevice is part of [Objects].
func (Kernel) DeleteDevice(name string) error {
	link, err := dummy(name)
	if err != nil || link == nil {
		return err
	}
	if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("delete the device %s (RTM_DELLINK): %w", name, err)
	}
	return nil
}

// DeleteAddr is part of [Objects].
func (Kernel) DeleteAddr(device string, addr netip.Addr) error {
	link, err := dummy(device)
	if err != nil || link == nil {
		return err
	}
	if err := netlink.AddrDel(link, &netlink.Addr{IPNet: host(addr)}); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return fmt.Errorf("delete %s from the device %s (RTM_DELADDR): %w", addr, device, err)
	}
	return nil
}

// routeProtocol is the origin of SetSource's routes, by which they are found again. No program in iproute2's rt_protos has it.
const routeProtocol = 107

// localRoute is a route in the kernel's table of this machine's own addresses.
func localRoute(addr netip.Addr, link netlink.Link, protocol netlink.RouteProtocol) *netlink.Route {
	return &netlink.Route{Dst: host(addr), LinkIndex: link.Attrs().Index, Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL, Protocol: protocol}
}

// DeleteRoutes is part of [Objects].
func (Kernel) DeleteRoutes(except map[netip.Addr]bool) error {
	var failed error
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		routes, err := netif.Uninterrupted(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_LOCAL, Protocol: routeProtocol}, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL)
		})
		if err != nil {
			return fmt.Errorf("list the local routes (RTM_GETROUTE): %w", err)
		}
		for _, route := range routes {
			if addr, _ := netip.AddrFromSlice(route.Dst.IP); except[addr.Unmap()] {
				continue
			}
			if err := netlink.RouteDel(&route); err != nil && !errors.Is(err, unix.ESRCH) {
				failed = cmp.Or(failed, fmt.Errorf("delete the local route to %s (RTM_DELROUTE): %w", route.Dst, err))
			}
		}
	}
	return failed
}

// host returns the range of one address.
func host(addr netip.Addr) *net.IPNet {
	return &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())}
}

// SetSource is part of [Objects].
func (Kernel) SetSource(ctx context.Context, device string, addrs []netip.Addr) error {
	link, err := dummy(device)
	if err != nil || link == nil {
		return err
	}
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find the device lo (RTM_GETLINK): %w", err)
	}
	var failed error
	for _, source := range netif.Sources() { // without one the machine cannot connect to endpoints elsewhere either
		for _, addr := range addrs {
			if addr.Is4() != source.Is4() {
				continue
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			failed = cmp.Or(failed, setSource(addr, source, link, loopback))
		}
	}
	return failed
}

// setSource replaces the route to an address of link by one to lo, because the dummy device is down, to which IPv6 accepts no routes.
func setSource(addr, source netip.Addr, link, loopback netlink.Link) error {
	route := localRoute(addr, loopback, routeProtocol)
	route.Scope, route.Src = netlink.SCOPE_HOST, source.AsSlice()
	if err := netlink.RouteReplace(route); err != nil {
		return fmt.Errorf("replace the local route to %s (RTM_NEWROUTE): %w", addr, err)
	}
	if addr.Is4() {
		return nil
	}
	// In IPv6 the new route is beside the kernel's own, and after it.
	if err := netlink.RouteDel(localRoute(addr, link, unix.RTPROT_KERNEL)); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("delete the kernel's local route to %s (RTM_DELROUTE): %w", addr, err)
	}
	return nil
}

// Bound is part of [Objects].
func (Kernel) Bound() (map[netip.Addr]bool, error) {
	const timeWait = 6 // TCP_TIME_WAIT
	bound := map[netip.Addr]bool{}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		for _, list := range []func(uint8) ([]*netlink.Socket, error){netlink.SocketDiagTCP, netlink.SocketDiagUDP} {
			sockets, err := netif.Uninterrupted(func() ([]*netlink.Socket, error) { return list(family) })
			if errors.Is(err, unix.ENOENT) { // a kernel without inet_diag, or udp_diag
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("list this machine's connections (SOCK_DIAG_BY_FAMILY): %w", err)
			}
			for _, s := range sockets {
				if addr, ok := netip.AddrFromSlice(s.ID.Source); ok && s.ID.DestinationPort != 0 && s.State != timeWait {
					bound[addr.Unmap()] = true
				}
			}
		}
	}
	return bound, nil
}
