package status

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Question asks where a connection goes.
type Question struct {
	// From is "node", "external", or the IP address of a pod or of another host.
	From string
	// To is a text for [ParseDestination]. An address or a Service without a port has one only.
	To string
	// Interface is the node's interface that packets of From arrive on, which matters only if the proxy detects local
	// traffic by it. Empty leaves it to what is known of the address.
	Interface string
}

// The values of Question.From that are no IP address.
const (
	FromNode     = "node"
	FromExternal = "external"
)

// QuestionError is a Question that has no answer. Its text says why, and what to ask instead.
type QuestionError struct{ text string }

func (e *QuestionError) Error() string { return e.text }

func badQuestion(format string, args ...any) error {
	return &QuestionError{fmt.Sprintf(format, args...)}
}

// packet returns the packet that a question is about, with notes for the reader about what was assumed.
func (s *State) packet(q Question) (packet plan.Packet, notes []string, err error) {
	to, err := ParseDestination(q.To)
	switch {
	case err != nil:
		return packet, nil, err
	case to.Service.Name != "":
		var note string
		if packet, note, err = s.serviceTarget(q.From, to); err != nil {
			return packet, nil, err
		}
		notes = append(notes, note)
	case to.To.Port() == 0:
		if packet.To, packet.Protocol, err = s.onlyPort(to); err != nil {
			return packet, nil, err
		}
		such := "this port only"
		if to.Port != "" {
			such = "the port " + to.Port
		}
		notes = append(notes, fmt.Sprintf("%s has %s: %d/%s", packet.To.Addr(), such, packet.To.Port(), packet.Protocol))
	default:
		packet.To, packet.Protocol = to.To, to.Protocol
	}
	note, err := s.source(q, &packet)
	if note != "" {
		notes = append(notes, note)
	}
	return packet, notes, err
}

// onlyPort returns the port of an address of Services that has one only, or one only of this name and protocol.
func (s *State) onlyPort(of Destination) (to netip.AddrPort, protocol cluster.Protocol, err error) {
	var all []string
	addr := of.To.Addr()
	for f, route := range s.Plan.Frontends.All() {
		if f.Addr == addr && !route.IsCanary() && (of.Port == "" || of.Port == route.Port()) && (of.Protocol == 0 || of.Protocol == f.Protocol) {
			to, protocol = netip.AddrPortFrom(addr, f.Port), f.Protocol
			all = append(all, fmt.Sprintf("%s/%s", to, strings.ToLower(protocol.String())))
		}
	}
	switch {
	case len(all) == 0 && of.Port != "":
		return to, protocol, badQuestion("%s has no port %s: write %s, with the number that you want", addr, of.Port, netip.AddrPortFrom(addr, 80))
	case len(all) == 0:
		return to, protocol, badQuestion("%s is no address of a Service, so the port is missing: write %s, with the port that you want", addr, netip.AddrPortFrom(addr, 80))
	case len(all) == 1:
		return to, protocol, nil
	default:
		return to, protocol, badQuestion("%s has several ports: choose one of %s", addr, strings.Join(all, ", "))
	}
}

// Destination is where packets go: an address, or a Service.
type Destination struct {
	// Service names a Service, and Port one of its ports, by name or number; empty is all. Service is empty for an address, whose Port is a
	// name only.
	Service cluster.ServiceName
	Port    string
	// Protocol is 0 for all of a Service's ports, and for an address without a port.
	Protocol cluster.Protocol
	// To is the address, with port 0 if there is none, or only its name.
	To netip.AddrPort
}

// ParseDestination parses IP[:PORT[/PROTOCOL]], in which an IPv6 address with a port has brackets, or NAMESPACE/NAME[:PORT[/PROTOCOL]].
// The Service may be the DNS name NAME.NAMESPACE.svc with any domain, and either may be the host of a URL, whose scheme may be the port.
// PORT is a number or a name. The protocol is TCP, UDP or SCTP in any case of letters, and TCP by default for an address with a number.
// Its errors are QuestionErrors.
func ParseDestination(text string) (d Destination, err error) {
	at, protocol, hasProtocol := strings.Cut(plain(text), "/")
	if to, failed := netip.ParseAddrPort(at); failed == nil {
		d.To = to
		if d.Protocol, err = parseProtocol(protocol); err != nil || to.Port() == 0 {
			return d, cmp.Or(err, badQuestion("no packet is sent to %s: address and port must not be 0", to))
		}
		return d, d.check()
	}
	host, name, failed := net.SplitHostPort(at)
	if addr, none := netip.ParseAddr(host); failed == nil && none == nil && strings.ContainsFunc(name, unicode.IsLetter) {
		d.To, d.Port = netip.AddrPortFrom(addr, 0), name
		if hasProtocol {
			d.Protocol, err = parseProtocol(protocol)
		}
		return d, cmp.Or(err, d.check())
	}
	if addr, failed := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(at, "["), "]")); failed == nil {
		if hasProtocol {
			return d, badQuestion("%q has a protocol but no port: write %s, or %s/%s", text, at, netip.AddrPortFrom(addr, 80), protocol)
		}
		d.To = netip.AddrPortFrom(addr, 0)
		return d, d.check()
	}
	name, protocol, hasProtocol = strings.Cut(protocol, "/")
	name, port, hasPort := strings.Cut(name, ":")
	if at == "" || name == "" || strings.ContainsAny(at, ":[]") || hasPort && port == "" || hasProtocol && !hasPort {
		return d, noDestination(text)
	}
	d.Service, d.Port = cluster.ServiceName{Namespace: at, Name: name}, port
	if hasProtocol {
		d.Protocol, err = parseProtocol(protocol)
	}
	return d, err
}

// plain returns the host of a URL with its port, and NAMESPACE/NAME in place of the DNS name of a Service; other texts as they are.
func plain(text string) string {
	if u, err := url.Parse(text); err == nil && u.Host != "" {
		text = u.Host
		if port := map[string]string{"http": ":80", "https": ":443"}[u.Scheme]; u.Port() == "" {
			text += port
		}
	}
	host, _, _ := strings.Cut(text, ":")
	if labels := strings.Split(host, "."); len(labels) > 2 && labels[2] == "svc" {
		return labels[1] + "/" + labels[0] + text[len(host):]
	}
	return text
}

func noDestination(text string) error {
	return badQuestion("%q is not a destination: write IP:PORT, [IPv6]:PORT, NAMESPACE/NAME[:PORT] or NAME.NAMESPACE.svc[:PORT], each with /udp or /sctp unless it is TCP", text)
}

// check rejects addresses that no packet has.
func (d *Destination) check() error {
	addr := d.To.Addr()
	switch {
	case addr.Is4In6() && d.To.Port() != 0:
		return badQuestion("%s is an IPv4-mapped IPv6 address; packets to it are IPv4 packets: ask for %s", addr, netip.AddrPortFrom(addr.Unmap(), d.To.Port()))
	case addr.Is4In6():
		return badQuestion("%s is an IPv4-mapped IPv6 address; packets to it are IPv4 packets: ask for %s", addr, addr.Unmap())
	case addr.IsUnspecified():
		return badQuestion("no packet is sent to %s: address and port must not be 0", addr)
	case addr.Zone() != "":
		return badQuestion("%s has a zone, which no packet has: leave it out", addr)
	}
	return nil
}

func parseProtocol(text string) (cluster.Protocol, error) {
	protocol, ok := cluster.ParseProtocol(cmp.Or(strings.ToUpper(text), "TCP"))
	if !ok {
		return 0, badQuestion("%q is not a protocol; there are tcp, udp and sctp", text)
	}
	return protocol, nil
}

// serviceTarget chooses an address of the Service that a destination names: the cluster IP, or for external clients a load
// balancer IP, an external IP or a node port.
func (s *State) serviceTarget(source string, to Destination) (packet plan.Packet, note string, err error) {
	service, ok := s.Snapshot.Services.Get(to.Service)
	if !ok {
		return packet, "", badQuestion("%s", s.Missing(to.Service))
	}
	port, err := choosePort(service, to.Port, to.Protocol)
	if err != nil {
		return packet, "", err
	}
	packet.Protocol = port.Protocol
	planned := s.planned(to.Service)
	order := []plan.Kind{plan.ClusterIP, plan.LoadBalancerIP, plan.ExternalIP, plan.NodePort}
	if source == FromExternal {
		order = append(order[1:], plan.ClusterIP)
	}
	from, _ := netip.ParseAddr(source)
	for _, kind := range order {
		for _, route := range planned.Routes {
			f := route.Frontend
			if route.Kind != kind || route.Port() != port.Name || f.Protocol != port.Protocol || from.IsValid() && from.Is4() != f.Addr.Is4() {
				continue
			}
			packet.To = netip.AddrPortFrom(f.Addr, f.Port)
			if f.IsNodePort() {
				addr, served := s.nodePortAddress(f.Family())
				if !served {
					continue
				}
				packet.To = netip.AddrPortFrom(addr, f.Port)
			}
			return packet, fmt.Sprintf("%s has the %s %s for this", to.Service, kind, packet.To), nil
		}
	}
	return packet, "", badQuestion("%s has no address for port %s that is served for connections from %s", to.Service, portName(port), source)
}

// nodePortAddress returns an address of a family on which node ports are served: the Node's own, if possible.
func (s *State) nodePortAddress(family cluster.Family) (netip.Addr, bool) {
	served := s.Plan.Node.NodePortAddrs
	if own, known := s.Snapshot.Node.Address(family); known && slices.Contains(served, own) {
		return own, true
	}
	at := slices.IndexFunc(served, func(a netip.Addr) bool { return cluster.FamilyOf(a) == family && !a.IsLoopback() })
	if at < 0 {
		return netip.Addr{}, false
	}
	return served[at], true
}

// choosePort finds a port by its name or number; without either there must be one only.
func choosePort(service *cluster.Service, text string, want cluster.Protocol) (*cluster.ServicePort, error) {
	var found []*cluster.ServicePort
	var all []string
	for i := range service.Ports {
		port := &service.Ports[i]
		all = append(all, portName(port))
		if (text == "" || text == port.Name || text == strconv.Itoa(int(port.Port))) && (want == 0 || want == port.Protocol) {
			found = append(found, port)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) == 0:
		return nil, badQuestion("%s has no port %s; it has %s", service.Name, cmp.Or(text, want.String()), strings.Join(all, ", "))
	default:
		return nil, badQuestion("%s has several such ports: choose one of %s, as in %s:%d/%s", service.Name, strings.Join(all, ", "),
			service.Name, found[0].Port, strings.ToLower(found[0].Protocol.String()))
	}
}

func portName(port *cluster.ServicePort) string {
	text := Port(v1alpha1.Port{Protocol: port.Protocol.String(), Port: port.Port})
	if port.Name != "" {
		text = port.Name + " (" + text + ")"
	}
	return text
}

// The addresses that stand for any client outside of the cluster (RFC 5737, RFC 3849), and an interface that local
// traffic does not arrive on.
const (
	external4, external6 = "203.0.113.1", "2001:db8::1"
	otherInterface       = "?"
)

// source sets a packet's source and input interface.
func (s *State) source(q Question, packet *plan.Packet) (note string, err error) {
	family := cluster.FamilyOf(packet.To.Addr())
	switch q.From {
	case "", FromNode:
		packet.Source, err = s.ownAddress(packet.To.Addr())
		return "", err
	case FromExternal:
		packet.Source, packet.Interface = netip.MustParseAddr(external4), otherInterface
		if family == cluster.IPv6 {
			packet.Source = netip.MustParseAddr(external6)
		}
		return fmt.Sprintf("%s stands for a client outside of the cluster", packet.Source), nil
	}
	if packet.Source, err = netip.ParseAddr(q.From); err != nil {
		return "", badQuestion("%q is not a source: give node, external, an IP address, or a pod as NAMESPACE/POD", q.From)
	}
	if packet.Source.Is4In6() {
		return "", badQuestion("%s is an IPv4-mapped IPv6 address: ask for %s", q.From, packet.Source.Unmap())
	}
	if cluster.FamilyOf(packet.Source) != family {
		return "", badQuestion("%s and %s are of different IP families: no packet has both", packet.Source, packet.To.Addr())
	}
	if slices.Contains(s.Plan.Node.Addrs, packet.Source) {
		return "", nil // the node's own
	}
	packet.Interface = cmp.Or(q.Interface, otherInterface)
	bridge := s.Plan.Node.LocalTraffic.Interface
	switch {
	case bridge == "" || q.Interface != "":
		return "", nil
	case s.isLocalPod(packet.Source):
		packet.Interface = strings.TrimSuffix(bridge, "*")
		return fmt.Sprintf("%s is taken to be a pod of this node, whose packets arrive on %s", packet.Source, bridge), nil
	default:
		return fmt.Sprintf("%s is taken to arrive on another interface than %s, by which local traffic is detected; name the interface if it is a pod of this node", packet.Source, bridge), nil
	}
}

// ownAddress returns the source address of the node's own packets to an address.
func (s *State) ownAddress(to netip.Addr) (netip.Addr, error) {
	if slices.Contains(s.Plan.Node.Addrs, to) {
		return to, nil // the kernel chooses the same source for an address of the machine
	}
	if addr, known := s.Snapshot.Node.Address(cluster.FamilyOf(to)); known {
		return addr, nil
	}
	for _, addr := range s.Plan.Node.Addrs {
		if addr.Is4() == to.Is4() && !addr.IsLoopback() && !addr.IsLinkLocalUnicast() {
			return addr, nil
		}
	}
	return netip.Addr{}, badQuestion("no %s address of the node is known: give the source as an IP address", cluster.FamilyOf(to))
}

// isLocalPod reports whether an address is of a pod of this node: in its pod CIDRs, or a local endpoint.
func (s *State) isLocalPod(addr netip.Addr) bool {
	if slices.ContainsFunc(s.Snapshot.Node.PodCIDRs, func(cidr netip.Prefix) bool { return cidr.Contains(addr) }) {
		return true
	}
	_, local := s.Plan.Hairpins.Get(addr)
	return local
}
