//go:build linux

package netns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	vnetns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Host is a machine of the lab: a network namespace.
type Host struct {
	// Name of the host, such as "pod1a".
	Name string
	// IPv4 and IPv6 are the host's own addresses, on [Uplink] ("segment" on the
	// gateway).
	IPv4, IPv6 netip.Addr
	// Interface is the pod's interface on its node; empty for other hosts.
	Interface string

	namespace *os.File
	netlink   *netlink.Handle
	lab       *Lab
	lastPort  atomic.Uint32 // counts the source ports of UDP and SCTP probes

	mu        sync.Mutex
	processes map[*Cmd]struct{}
	servers   []io.Closer
	sctp      *sctpResponder
}

// newHost creates a namespace and a netlink socket in it.
func newHost(name string, lab *Lab) (*Host, error) {
	namespace, err := newNamespace()
	if err != nil {
		return nil, err
	}
	handle, err := netlink.NewHandleAt(vnetns.NsHandle(namespace.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		namespace.Close()
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	host := &Host{Name: name, namespace: namespace, netlink: handle, lab: lab, processes: map[*Cmd]struct{}{}}
	host.lastPort.Store(rand.Uint32())
	if err := host.up("lo"); err != nil {
		return nil, errors.Join(err, host.close())
	}
	return host, nil
}

// String returns the host's name.
func (h *Host) String() string { return h.Name }

// Addr returns the host's own address of the family.
func (h *Host) Addr(family Family) netip.Addr {
	if family == IPv6 {
		return h.IPv6
	}
	return h.IPv4
}

// Path returns the path with which other processes can enter the namespace while the
// lab exists: nsenter --net=PATH COMMAND.
func (h *Host) Path() string {
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), h.namespace.Fd())
}

// Do runs f inside the host's network namespace, on a thread locked to it, and
// returns f's error. Sockets that f opens stay in the namespace. Goroutines that f
// starts are not inside, and a process that f starts is not killed when the lab is
// closed: use [Host.Command].
func (h *Host) Do(f func() error) error { return inside(h.namespace, f) }

// Dial connects from the host, like [net.Dialer.DialContext]. The address must be
// numeric.
func (h *Host) Dial(ctx context.Context, network, address string) (connection net.Conn, err error) {
	err = h.Do(func() error {
		connection, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return connection, err
}

// Listen listens for streams on the host, like [net.Listen]. The caller must close
// the listener.
func (h *Host) Listen(network, address string) (listener net.Listener, err error) {
	err = h.Do(func() error {
		listener, err = new(net.ListenConfig).Listen(context.Background(), network, address)
		return err
	})
	return listener, err
}

// ListenPacket listens for datagrams on the host, like [net.ListenPacket]. The caller
// must close the connection.
func (h *Host) ListenPacket(network, address string) (connection net.PacketConn, err error) {
	err = h.Do(func() error {
		connection, err = new(net.ListenConfig).ListenPacket(context.Background(), network, address)
		return err
	})
	return connection, err
}

// AddAddress adds an address to the host's uplink, usable when it returns. Adding
// it again changes nothing. The host still prefers its own addresses as source.
func (h *Host) AddAddress(address netip.Prefix) error {
	added := &netlink.Addr{IPNet: ipNet(address)}
	if address.Addr().Is6() {
		// Deprecated, because the kernel would otherwise prefer the newest address.
		added.ValidLft, added.PreferedLft = math.MaxUint32, 0
	}
	if err := h.addAddress(h.uplink(), added); err != nil {
		return err
	}
	return settle([]*Host{h}, 5*time.Second)
}

// DelAddress removes an address from the host's uplink, and with it its routes.
func (h *Host) DelAddress(address netip.Prefix) error {
	link, err := h.netlink.LinkByName(h.uplink())
	if err != nil {
		return fmt.Errorf("find %s of %s: %w", h.uplink(), h.Name, err)
	}
	if err := h.netlink.AddrDel(link, &netlink.Addr{IPNet: ipNet(address)}); err != nil {
		return fmt.Errorf("remove the address %v from %s: %w", address, h.Name, err)
	}
	return nil
}

// RouteVia adds routes to the destinations through another host. It replaces existing
// routes to the same destinations.
func (h *Host) RouteVia(gateway *Host, destinations ...netip.Prefix) error {
	for _, destination := range destinations {
		if err := h.route(destination, gateway.Addr(FamilyOf(destination.Addr())), 0); err != nil {
			return err
		}
	}
	return nil
}

// Unroute removes routes that [Host.RouteVia] added.
func (h *Host) Unroute(destinations ...netip.Prefix) error {
	for _, destination := range destinations {
		if err := h.netlink.RouteDel(&netlink.Route{Dst: ipNet(destination)}); err != nil {
			return fmt.Errorf("remove the route to %v from %s: %w", destination, h.Name, err)
		}
	}
	return nil
}

// SetSysctl writes a value below /proc/sys/net of the host, such as
// ("ipv4/ip_forward", "1").
func (h *Host) SetSysctl(name, value string) error {
	return h.Do(func() error {
		if err := os.WriteFile(filepath.Join("/proc/sys/net", name), []byte(value), 0); err != nil {
			return fmt.Errorf("set net/%s to %s on %s: %w", name, value, h.Name, err)
		}
		return nil
	})
}

// nextPort returns the ports from 32768 up in turn. The kernel could choose a port that
// was used a moment ago; then conntrack on the way would treat the packet as part of
// the old connection.
func (h *Host) nextPort() uint16 { return 1<<15 | uint16(h.lastPort.Add(1)) }

// uplink returns the interface that has the host's own addresses.
func (h *Host) uplink() string {
	if h.Name == "gateway" {
		return "segment"
	}
	return Uplink
}

// addAddress adds an address to an interface. The kernel makes it usable some time
// later; see settle.
func (h *Host) addAddress(name string, address *netlink.Addr) error {
	link, err := h.netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s of %s: %w", name, h.Name, err)
	}
	if err := h.netlink.AddrReplace(link, address); err != nil {
		return fmt.Errorf("add to %s of %s the address %v: %w", name, h.Name, address.IPNet, err)
	}
	return nil
}

// route sets one route. If link is set, the gateway need not be in a range of that
// link.
func (h *Host) route(destination netip.Prefix, gateway netip.Addr, link int) error {
	route := &netlink.Route{Dst: ipNet(destination), Gw: gateway.AsSlice(), LinkIndex: link}
	if link != 0 {
		route.SetFlag(netlink.FLAG_ONLINK)
	}
	if err := h.netlink.RouteReplace(route); err != nil {
		return fmt.Errorf("route %v of %s via %v: %w", destination, h.Name, gateway, err)
	}
	return nil
}

func (h *Host) up(name string) error {
	link, err := h.netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s of %s: %w", name, h.Name, err)
	}
	if err := h.netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("bring up %s of %s: %w", name, h.Name, err)
	}
	return nil
}

// unsettled returns the name of a link or an address that is not usable yet.
func (h *Host) unsettled() (string, error) {
	links, err := h.netlink.LinkList()
	if err != nil {
		return "", fmt.Errorf("list the links of %s: %w", h.Name, err)
	}
	for _, link := range links {
		attrs := link.Attrs()
		if attrs.Name != "lo" && attrs.Flags&net.FlagUp != 0 && attrs.OperState != netlink.OperUp {
			return attrs.Name, nil
		}
	}
	addresses, err := h.netlink.AddrList(nil, unix.AF_INET6)
	if err != nil {
		return "", fmt.Errorf("list the addresses of %s: %w", h.Name, err)
	}
	for _, address := range addresses {
		// The kernel adds the local route of an address when it becomes usable.
		routes, err := h.netlink.RouteGet(address.IP)
		if err != nil || len(routes) == 0 || routes[0].Type != unix.RTN_LOCAL {
			return address.String(), nil //nolint:nilerr // the error means that there is no route yet
		}
	}
	return "", nil
}

// tune sets sysctls so that the host answers every packet at once and uses only its
// own routes: no duplicate address detection, no reverse path filter, no limit on
// ICMP errors, and no redirects, with which a node would make the client bypass it.
// It must run before the host has links, which inherit the defaults.
func (h *Host) tune() error {
	return h.sysctls([][2]string{
		{"ipv6/conf/all/accept_dad", "0"},
		{"ipv6/conf/default/accept_dad", "0"},
		{"ipv6/conf/default/accept_ra", "0"},
		{"ipv4/conf/all/rp_filter", "0"},
		{"ipv4/conf/default/rp_filter", "0"},
		{"ipv4/conf/all/accept_redirects", "0"},
		{"ipv4/conf/default/accept_redirects", "0"},
		{"ipv4/conf/all/send_redirects", "0"},
		{"ipv4/conf/default/send_redirects", "0"},
		{"ipv6/conf/default/accept_redirects", "0"},
		{"ipv4/icmp_ratemask", "0"},
		{"ipv6/icmp/ratemask", "\n"}, // no type is limited
	})
}

// forward makes the host a router.
func (h *Host) forward() error {
	return h.sysctls([][2]string{{"ipv4/ip_forward", "1"}, {"ipv6/conf/all/forwarding", "1"}})
}

// filterBridged applies the host's rules to bridged packets too, as on the nodes of a
// real cluster: otherwise an answer between two pods of a node would not be
// translated back.
func (h *Host) filterBridged() error {
	if _, err := os.Stat("/proc/sys/net/bridge"); errors.Is(err, fs.ErrNotExist) {
		if output, err := exec.Command("modprobe", "br_netfilter").CombinedOutput(); err != nil {
			return fmt.Errorf("load the kernel module br_netfilter: %w: %s", err, bytes.TrimSpace(output))
		}
	}
	return h.sysctls([][2]string{{"bridge/bridge-nf-call-iptables", "1"}, {"bridge/bridge-nf-call-ip6tables", "1"}})
}

func (h *Host) sysctls(settings [][2]string) error {
	for _, setting := range settings {
		if err := h.SetSysctl(setting[0], setting[1]); err != nil {
			return err
		}
	}
	return nil
}

// close stops the host's servers and closes its namespace.
func (h *Host) close() error {
	h.mu.Lock()
	servers := h.servers
	h.servers = nil
	h.mu.Unlock()
	var errs []error
	for _, server := range servers {
		errs = append(errs, server.Close())
	}
	h.netlink.Close()
	return errors.Join(append(errs, h.namespace.Close())...)
}
