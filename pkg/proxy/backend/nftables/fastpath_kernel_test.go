package nftables

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// fastLab is a client outside, a node with the fast path, and pods that echo.
type fastLab struct {
	*testing.T
	*netns.Lab
	backend *Backend
	family  cluster.Family
	vip     netip.Addr
}

// newFastLab skips the test if the kernel has no flowtable, after it has checked that the reason says so.
func newFastLab(t *testing.T, family cluster.Family, network netns.PodNetwork) *fastLab {
	t.Helper()
	l := &fastLab{T: t, family: family, vip: netip.MustParseAddr("192.0.2.10")}
	route := netip.MustParsePrefix("192.0.2.0/24")
	if family == cluster.IPv6 {
		l.vip, route = netip.MustParseAddr("fd00:192::2:a"), netip.MustParsePrefix("fd00:192::/32")
	}
	l.Lab = netns.Start(t, netns.Options{ClientRoutes: []netip.Prefix{route}, PodNetwork: network})
	var missing error
	_ = l.Node1.Do(func() error { missing = Mode{}.FastPath(t.Context(), cluster.IPv4, cluster.IPv6); return nil })
	if missing != nil {
		if !errors.Is(missing, unix.ENOENT) && !strings.Contains(missing.Error(), "No such file") && !strings.Contains(missing.Error(), "it takes 6.1") {
			t.Fatalf("the reason is %v", missing)
		}
		t.Skipf("no flowtable: %v", missing)
	}
	l.backend = openIn(t, l.Node1.Host)
	for _, pod := range l.Node1.Pods {
		l.echo(pod)
	}
	return l
}

// echo answers all TCP and UDP to a pod's ports with its name and what it got.
func (l *fastLab) echo(pod *netns.Host) {
	l.Helper()
	tcp, err := pod.Listen("tcp", ":8080")
	if err != nil {
		l.Fatal(err)
	}
	udp, err := pod.ListenPacket("udp", ":5353")
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { _, _ = tcp.Close(), udp.Close() })
	go func() {
		for {
			c, err := tcp.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); c.Close() }()
		}
	}()
	go func() {
		buffer := make([]byte, 2000)
		for {
			n, from, err := udp.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = udp.WriteTo(append([]byte(pod.Name+" "), buffer[:n]...), from)
		}
	}()
}

// set programs the Service with one endpoint, source ranges, and the devices that the node has.
func (l *fastLab) set(endpoint int, ranges string) *plan.Plan {
	l.Helper()
	var devices []cluster.Device
	_ = l.Node1.Do(func() error {
		links, err := net.Interfaces()
		for _, link := range links {
			if link.Flags&(net.FlagUp|net.FlagLoopback) == net.FlagUp && link.Name != netns.Bridge {
				devices = append(devices, cluster.Device{Name: link.Name, Index: link.Index})
			}
		}
		return err
	})
	slices.SortFunc(devices, func(a, b cluster.Device) int { return strings.Compare(a.Name, b.Name) })
	snapshot := fastService{true, l.Node1.Pods[endpoint].IPv4.String(), ranges}.snapshot(l.T, l.family, devices...)
	p := plan.Compute(snapshot, &plan.Options{FastPath: plan.FastPath{On: true}}, nil)
	l.sync(p)
	return p
}

func (l *fastLab) sync(p *plan.Plan) {
	l.Helper()
	var err error
	_ = l.Node1.Do(func() error { err = syncErr(l.backend, p); return nil })
	if err != nil {
		l.Fatal(err)
	}
}

// dial opens a connection from the client.
func (l *fastLab) dial(network string, port uint16) net.Conn {
	l.Helper()
	c, err := l.Client.Dial(l.Context(), network, netip.AddrPortFrom(l.vip, port).String())
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { c.Close() })
	return c
}

// answerLimit is how long an answer may take on a busy machine.
const answerLimit = 20 * time.Second

// ask sends a line and returns the answer.
func ask(c net.Conn, limit time.Duration) (string, error) {
	if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
		return "", err
	}
	if _, err := c.Write([]byte("hello")); err != nil {
		return "", err
	}
	buffer := make([]byte, 2000)
	n, err := c.Read(buffer)
	return string(buffer[:n]), err
}

// exchange sends so many lines and awaits their answers.
func (l *fastLab) exchange(c net.Conn, n int) (last string) {
	l.Helper()
	for i := range n {
		var err error
		if last, err = ask(c, answerLimit); err != nil {
			l.Fatalf("answer %d: %v", i, err)
		}
	}
	return last
}

var entryNumber = regexp.MustCompile(`(packets|bytes)=(\d+)`)

// entry returns conntrack's entry of a connection, and its numbers of packets in both directions together.
func (l *fastLab) entry(c net.Conn) (line string, packets int) {
	l.Helper()
	address := netip.MustParseAddrPort(c.LocalAddr().String())
	family := map[cluster.Family]string{cluster.IPv4: "ipv4", cluster.IPv6: "ipv6"}[l.family]
	out, err := l.Node1.Command("conntrack", "-L", "-f", family, "-p", c.LocalAddr().Network(), "--sport", fmt.Sprint(address.Port())).Output()
	if err != nil {
		l.Fatal(err)
	}
	for _, number := range entryNumber.FindAllStringSubmatch(string(out), -1) {
		if n, _ := strconv.Atoi(number[2]); number[1] == "packets" {
			packets += n
		}
	}
	return strings.TrimSpace(string(out)), packets
}

// seen returns how many packets have passed hook forward of the node.
func (l *fastLab) seen() int {
	l.Helper()
	out, err := l.Node1.Command("nft", "list", "counter", "inet", "witness", "forwarded").Output()
	if err != nil {
		l.Fatal(err)
	}
	words := strings.Fields(string(out))
	n, _ := strconv.Atoi(words[slices.Index(words, "packets")+1])
	return n
}

// forget deletes the entries of a protocol's connections to the Service.
func (l *fastLab) forget(protocol string) {
	l.Helper()
	family := map[cluster.Family]string{cluster.IPv4: "ipv4", cluster.IPv6: "ipv6"}[l.family]
	if out, err := l.Node1.Command("conntrack", "-D", "-f", family, "-p", protocol, "--orig-dst", l.vip.String()).CombinedOutput(); err != nil {
		l.Fatalf("delete the entries: %v\n%s", err, out)
	}
}

// TestKernelFastPath sends packets on the fast path of kernels that have one: they meet no rule, are counted, and stop at once when
// conntrack's entry is deleted.
func TestKernelFastPath(t *testing.T) {
	t.Parallel()
	for family, network := range map[cluster.Family]netns.PodNetwork{cluster.IPv4: netns.Bridged, cluster.IPv6: netns.Routed} {
		t.Run(family.String(), func(t *testing.T) {
			l := newFastLab(t, family, network)
			l.set(0, "")
			witness := l.Node1.Command("nft", "-f", "-")
			witness.Stdin = strings.NewReader("table inet witness {\ncounter forwarded { }\nchain c { type filter hook forward priority 10; counter name forwarded; }\n}\n")
			if out, err := witness.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			l.longConnection("tcp", 80)
			l.longConnection("udp", 53)
			l.deletedUDP()
			l.restrictedUDP()
			l.deletedTCP()
			l.devices()
		})
	}
}

// longConnection checks that a connection gets onto the fast path, and is counted there.
func (l *fastLab) longConnection(network string, port uint16) {
	l.Helper()
	c := l.dial(network, port)
	l.exchange(c, 2)
	if line, _ := l.entry(c); strings.Contains(line, "[OFFLOAD]") {
		l.Errorf("a short connection is on the fast path: %s", line)
	}
	l.exchange(c, 18)
	line, before := l.entry(c)
	if !strings.Contains(line, "[OFFLOAD]") {
		l.Fatalf("a long connection is not on the fast path: %s", line)
	}
	const more = 100
	seen := l.seen()
	l.exchange(c, more)
	if now := l.seen(); now > seen+more/10 {
		l.Errorf("%s: %d of at least %d packets passed hook forward", network, now-seen, 2*more)
	}
	line, after := l.entry(c)
	if n := after - before; n < 2*more || n > 4*more {
		l.Errorf("conntrack counted %d packets of %d exchanges: %s", n, more, line)
	}
	if err := c.Close(); err != nil {
		l.Fatal(err)
	}
}

// deletedUDP checks that a flow goes to another endpoint with its next packet when its entry was deleted.
func (l *fastLab) deletedUDP() {
	l.Helper()
	c := l.dial("udp", 53)
	if got := l.exchange(c, 30); !strings.HasPrefix(got, l.Node1.Pods[0].Name) {
		l.Fatalf("answered by %q", got)
	}
	l.set(1, "")
	if got := l.exchange(c, 1); !strings.HasPrefix(got, l.Node1.Pods[0].Name) {
		l.Errorf("answered by %q before the entry was deleted", got)
	}
	l.forget("udp")
	if got := l.exchange(c, 1); !strings.HasPrefix(got, l.Node1.Pods[1].Name) {
		l.Errorf("answered by %q after the entry was deleted", got)
	}
	l.set(0, "")
}

// restrictedUDP checks that no packet of a flow passes when source ranges exclude it and its entry was deleted.
func (l *fastLab) restrictedUDP() {
	l.Helper()
	c := l.dial("udp", 53)
	l.exchange(c, 30)
	l.set(0, "10.1.1.0/24")
	l.forget("udp")
	if got, err := ask(c, time.Second); err == nil {
		l.Errorf("an excluded client got the answer %q", got)
	}
	l.set(0, "")
}

// deletedTCP checks that a connection ends with its next packet when its entry was deleted: the other endpoint does not know it.
func (l *fastLab) deletedTCP() {
	l.Helper()
	c := l.dial("tcp", 80)
	l.exchange(c, 30)
	l.set(1, "")
	l.forget("tcp")
	if got, err := ask(c, answerLimit); !errors.Is(err, unix.ECONNRESET) {
		l.Errorf("after its entry was deleted, the connection had the answer %q, %v; want a reset", got, err)
	}
	l.set(0, "")
}

// devices checks that the flowtable gets new devices, loses those that disappear, and is repaired.
func (l *fastLab) devices() {
	l.Helper()
	table := map[cluster.Family]string{cluster.IPv4: "ip", cluster.IPv6: "ip6"}[l.family]
	ip := func(command string) {
		l.Helper()
		if out, err := l.Node1.Command("ip", strings.Fields(command)...).CombinedOutput(); err != nil {
			l.Fatalf("ip %s: %v\n%s", command, err, out)
		}
	}
	has := func(device string, want bool) {
		l.Helper()
		out, err := l.Node1.Command("nft", "list", "flowtables").Output()
		_, own, _ := strings.Cut(string(out), "table "+table+" kube-proxy {")
		own, _, _ = strings.Cut(own, "\n}")
		if err != nil || strings.Contains(own, device) != want {
			l.Errorf("device %s, want %t: %v\n%s", device, want, err, out)
		}
	}
	ip("link add come type veth peer name gone")
	ip("link set come up")
	ip("link set gone up")
	l.set(0, "")
	has("come", true)
	ip("link delete come")
	has("come", false)
	ip("link add come type veth peer name gone")
	ip("link set come up")
	p := l.set(0, "")
	has("come", true)
	if out, err := l.Node1.Command("nft", "delete flowtable "+table+" kube-proxy fast-path { devices = { come }; }").CombinedOutput(); err != nil {
		l.Logf("this nft cannot remove a device: %v\n%s", err, out)
		return
	}
	has("come", false)
	found := 0
	_ = l.Node1.Do(func() error {
		for deadline := time.Now().Add(answerLimit); found == 0 && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			drifts, err := l.backend.Check(context.Background())
			if err != nil {
				return err
			}
			found = len(drifts)
		}
		return nil
	})
	if found == 0 {
		l.Error("the removed device was not noticed")
	}
	l.sync(p)
	has("come", true)
	ip("link delete come")
}
