//go:build linux

package ipvs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
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

	attrService = 1

	serviceFamily   = 1
	serviceProtocol = 2
	serviceAddr     = 3
	servicePort     = 4
)

// attempts is how often a list is read if others change it at the same time.
const attempts = 10

// Servers is part of [Objects].
func (Kernel) Servers() ([]Server, error) {
	// The file exists if the module is loaded.
	if _, err := os.Stat("/proc/thread-self/net/ip_vs"); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	request, err := newRequest(cmdGetService, unix.NLM_F_DUMP)
	if err != nil {
		return nil, err
	}
	messages, err := request.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return nil, fmt.Errorf("list the virtual servers (IPVS_CMD_GET_SERVICE): %w", err)
	}
	var servers []Server
	for _, message := range messages {
		server, ok, err := parseServer(message)
		if err != nil {
			return nil, err
		}
		if ok {
			servers = append(servers, server)
		}
	}
	return servers, nil
}

// newRequest begins a message to the module.
func newRequest(command uint8, flags int) (*nl.NetlinkRequest, error) {
	family, err := netlink.GenlFamilyGet(genlFamily)
	if err != nil {
		return nil, fmt.Errorf("find the generic netlink family %s: %w", genlFamily, err)
	}
	request := nl.NewNetlinkRequest(int(family.ID), flags)
	request.AddData(&nl.Genlmsg{Command: command, Version: genlVersion})
	return request, nil
}

// parseServer reads one message of the list. ok is false for servers with a firewall mark instead of an address.
func parseServer(message []byte) (server Server, ok bool, err error) {
	if len(message) < nl.SizeofGenlmsg {
		return Server{}, false, fmt.Errorf("list the virtual servers: a message of %d bytes", len(message))
	}
	for outer := range nl.ParseAttributes(message[nl.SizeofGenlmsg:]) {
		if outer.Type&nl.NLA_TYPE_MASK != attrService {
			continue
		}
		var family, port uint16
		var addr []byte
		for attr := range nl.ParseAttributes(outer.Value) {
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
		if family == unix.AF_INET && len(addr) > 4 {
			addr = addr[:4] // the kernel sends as many bytes for either family
		}
		if ip, valid := netip.AddrFromSlice(addr); valid {
			server.Addr, ok = netip.AddrPortFrom(ip, port), true
		}
	}
	return server, ok, nil
}

// DeleteServer is part of [Objects].
func (Kernel) DeleteServer(s Server) error {
	request, err := newRequest(cmdDelService, unix.NLM_F_ACK)
	if err != nil {
		return err
	}
	family := uint16(unix.AF_INET)
	if s.Addr.Addr().Is6() {
		family = unix.AF_INET6
	}
	service := nl.NewRtAttr(attrService|int(nl.NLA_F_NESTED), nil)
	service.AddRtAttr(serviceFamily, nl.Uint16Attr(family))
	service.AddRtAttr(serviceProtocol, nl.Uint16Attr(uint16(s.Protocol)))
	service.AddRtAttr(serviceAddr, s.Addr.Addr().AsSlice())
	service.AddRtAttr(servicePort, binary.BigEndian.AppendUint16(nil, s.Addr.Port()))
	request.AddData(service)
	if _, err := request.Execute(unix.NETLINK_GENERIC, 0); err != nil && !errors.Is(err, unix.ESRCH) {
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
	listed, err := netlink.IpsetListAll()
	for attempt := 1; attempt < attempts && errors.Is(err, unix.EINTR); attempt++ {
		listed, err = netlink.IpsetListAll()
	}
	if err != nil {
		return nil, fmt.Errorf("list the sets (IPSET_CMD_LIST): %w", err)
	}
	var sets []Set
	for _, part := range listed { // a large set takes several messages
		if !wanted(part.SetName) {
			continue
		}
		if len(sets) == 0 || sets[len(sets)-1].Name != part.SetName {
			sets = append(sets, Set{Name: part.SetName})
		}
		set := &sets[len(sets)-1]
		for _, e := range part.Entries {
			if e.Port != nil {
				set.Ports = append(set.Ports, *e.Port)
			}
		}
	}
	return sets, nil
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
	addrs, err = addrsOf(link)
	return addrs, true, err
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

// addrsOf returns the addresses of a device, or of all devices if it is nil.
func addrsOf(link netlink.Link) ([]netip.Addr, error) {
	list, err := netlink.AddrList(link, netlink.FAMILY_ALL)
	for attempt := 1; attempt < attempts && errors.Is(err, netlink.ErrDumpInterrupted); attempt++ {
		list, err = netlink.AddrList(link, netlink.FAMILY_ALL)
	}
	if err != nil {
		return nil, fmt.Errorf("list addresses (RTM_GETADDR): %w", err)
	}
	var addrs []netip.Addr
	for _, a := range list {
		if addr, ok := netip.AddrFromSlice(a.IP); ok {
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

// LocalAddrs is part of [Objects].
func (Kernel) LocalAddrs() ([]netip.Addr, error) { return addrsOf(nil) }
