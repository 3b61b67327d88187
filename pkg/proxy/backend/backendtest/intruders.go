//go:build linux

package backendtest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// Intruders are a neighbour and a pod of node1 that send packets to the loopback addresses of node1, which has servers there. The
// kernel of node1 accepts such packets (route_localnet), whatever their sources (rp_filter is 0 in the lab).
type Intruders struct {
	lab      *netns.Lab
	hosts    []*netns.Host
	nodePort uint16
	// ear is a server on 127.0.0.1:7001, client one on 127.0.0.1:7002 that is connected to 127.0.0.53:7053.
	ear    net.PacketConn
	client net.Conn
}

// NewIntruders prepares the hosts. nodePort is a node port of TCP and UDP.
func NewIntruders(t *testing.T, lab *netns.Lab, nodePort uint16) *Intruders {
	t.Helper()
	node, pod := lab.Node1, lab.Node1.Pods[1]
	i := &Intruders{lab: lab, hosts: []*netns.Host{lab.Client, pod}, nodePort: nodePort}
	failed := []error{node.SetSysctl("ipv4/conf/all/route_localnet", "1")}
	for _, protocol := range []netns.Protocol{netns.TCP, netns.UDP} {
		_, err := node.Serve(protocol, 7000)
		failed = append(failed, err)
	}
	for _, host := range i.hosts {
		router := node.IPv4
		if host == pod {
			router = node.PodCIDRs[0].Addr().Next()
		}
		failed = append(failed, host.SetSysctl("ipv4/conf/all/route_localnet", "1"))
		for _, command := range []string{"addr del 127.0.0.1/8 dev lo", "route add 127.0.0.0/8 via " + router.String(),
			"addr add 127.0.0.2/32 dev eth0", "addr add 127.0.0.53/32 dev eth0"} {
			if out, err := host.Command("ip", strings.Fields(command)...).CombinedOutput(); err != nil {
				failed = append(failed, fmt.Errorf("%s: ip %s: %w: %s", host.Name, command, err, out))
			}
		}
	}
	failed = append(failed, i.listen(t))
	if err := errors.Join(failed...); err != nil {
		t.Fatal(err)
	}
	return i
}

// listen opens the sockets of node1, and lets its client ask a question, as it asks a name server.
func (i *Intruders) listen(t *testing.T) error {
	server, err := i.lab.Node1.ListenPacket("udp4", "127.0.0.53:7053")
	if err != nil {
		return err
	}
	t.Cleanup(func() { server.Close() })
	if i.ear, err = i.lab.Node1.ListenPacket("udp4", "127.0.0.1:7001"); err != nil {
		return err
	}
	t.Cleanup(func() { i.ear.Close() })
	err = i.lab.Node1.Do(func() (err error) {
		i.client, err = net.DialUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7002}, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 53), Port: 7053})
		return err
	})
	if err != nil {
		return err
	}
	t.Cleanup(func() { i.client.Close() })
	_, err = i.client.Write([]byte("question"))
	var buffer [100]byte
	if err == nil {
		_, _, err = server.ReadFrom(buffer[:])
	}
	if err == nil {
		_, err = server.WriteTo([]byte("answer"), i.client.LocalAddr())
	}
	if err == nil {
		_, err = i.client.Read(buffer[:])
	}
	return err
}

// Passed sends the packets, and returns those that arrive. atLeast is how many certainly do.
func (i *Intruders) Passed(t *testing.T, atLeast int) (passed []string) {
	t.Helper()
	var probes []netns.Probe
	for _, host := range i.hosts {
		for _, protocol := range []netns.Protocol{netns.TCP, netns.UDP} {
			for _, port := range []uint16{7000, i.nodePort} {
				probes = append(probes, netns.Probe{From: host, Protocol: protocol, To: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)})
			}
		}
		i.forge(t, host, "127.0.0.2:0", i.ear.LocalAddr(), "from a loopback address")
		i.forge(t, host, "127.0.0.53:7053", i.client.LocalAddr(), "to an open flow")
	}
	for at, answer := range netns.SendAll(probes...) {
		if answer.Verdict != netns.Dropped {
			passed = append(passed, fmt.Sprintf("%s: %s", probes[at], answer))
		}
	}
	for _, socket := range []net.Conn{i.ear.(net.Conn), i.client} {
		for range i.hosts {
			wait := 50 * time.Millisecond // the probes took longer
			if len(passed) < atLeast {
				wait = 10 * time.Second
			}
			_ = socket.SetReadDeadline(time.Now().Add(wait))
			var buffer [100]byte
			if n, err := socket.Read(buffer[:]); err == nil {
				passed = append(passed, string(buffer[:n]))
			}
		}
	}
	return passed
}

// translations are rules of another program that need route_localnet: a pod reaches a server of node1 on a loopback address by another
// address, as agents for the metadata of a cloud do, and node1 reaches a pod by a port on a loopback address.
const translations = `add table ip other
add chain ip other in { type nat hook prerouting priority -100; }
add rule ip other in ip daddr 169.254.169.254 tcp dport 80 dnat to 127.0.0.1:7000
add chain ip other out { type nat hook output priority -100; }
add rule ip other out ip daddr 127.0.0.1 tcp dport 31000 dnat to %s:8080
add chain ip other post { type nat hook postrouting priority 100; }
add rule ip other post ip saddr 127.0.0.0/8 oifname != "lo" masquerade
`

// CheckOthers checks that the translations of another program work, and that node1 reaches its own servers.
func (i *Intruders) CheckOthers(t *testing.T) {
	t.Helper()
	node, pod, other := i.lab.Node1, i.lab.Node1.Pods[0], i.lab.Node2.Pods[0]
	nft := node.Command("nft", "-f", "-")
	nft.Stdin = strings.NewReader(fmt.Sprintf(translations, other.IPv4))
	if out, err := nft.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, test := range []struct {
		from *netns.Host
		to   string
		by   *netns.Host
	}{{pod, "169.254.169.254:80", node.Host}, {node.Host, "127.0.0.1:31000", other}, {node.Host, "127.0.0.1:7000", node.Host}} {
		probe := netns.Probe{From: test.from, To: netip.MustParseAddrPort(test.to)}
		if answer := probe.Send(); answer.Endpoint != test.by.Name {
			t.Errorf("%s: %s, want %s", probe, answer, test.by)
		}
	}
	if out, err := node.Command("nft", "delete", "table", "ip", "other").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// forge sends a datagram with a loopback address as its source.
func (i *Intruders) forge(t *testing.T, host *netns.Host, from string, to net.Addr, what string) {
	t.Helper()
	socket, err := host.ListenPacket("udp4", from)
	if err == nil {
		_, err = socket.WriteTo([]byte(host.Name+" "+what), to)
		err = errors.Join(err, socket.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}
