package nftables

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// picks draws endpoints as fast as the kernel can: node1 sends datagrams to a cluster IP, and a table of the test's
// own drops them after DNAT, before conntrack keeps them, so that each is a new connection.
type picks struct {
	t        *testing.T
	lab      *netns.Lab
	backend  *Backend
	services *cluster.Editor[cluster.ServiceName, *cluster.Service]
	last     *plan.Plan
}

// picksVIP is the cluster IP, port 53 in UDP.
var picksVIP = [4]byte{10, 96, 0, 10}

func newPicks(t *testing.T) *picks {
	p := &picks{t: t, lab: netns.Start(t, netns.Options{}), services: cluster.Map[cluster.ServiceName, *cluster.Service]{}.Edit()}
	p.backend = openIn(t, p.lab.Node1.Host)
	// The counter of what kept the cluster IP, and that of what was sent to an endpoint that was taken away.
	p.nft("add", "table", "ip", "test")
	p.nft("add", "counter", "ip", "test", "untranslated")
	p.nft("add", "counter", "ip", "test", "removed")
	p.nft("add", "set", "ip", "test", "gone", "{ type ipv4_addr; }")
	p.nft("add", "chain", "ip", "test", "after", "{ type filter hook output priority -50; }")
	p.nft("add", "rule", "ip", "test", "after", "ip daddr 10.96.0.10 counter name untranslated drop")
	p.nft("add", "rule", "ip", "test", "after", "ip daddr @gone counter name removed drop")
	p.nft("add", "rule", "ip", "test", "after", "udp dport 5353 drop")
	return p
}

func (p *picks) nft(args ...string) string {
	p.t.Helper()
	out, err := p.lab.Node1.Command("nft", args...).Output()
	if err != nil {
		p.t.Fatal(err)
	}
	return string(out)
}

// counted reads one of the counters.
func (p *picks) counted(name string) (packets int) {
	p.t.Helper()
	out := p.nft("list", "counter", "ip", "test", name)
	var table, counter string
	if _, err := fmt.Sscanf(out, "table ip %s {\n counter %s {\n packets %d", &table, &counter, &packets); err != nil {
		p.t.Fatalf("%v in\n%s", err, out)
	}
	return packets
}

// scale gives the Service its first n endpoints.
func (p *picks) scale(n int) {
	p.t.Helper()
	p.set(0, n)
	p.last = plan.Compute(&cluster.Snapshot{Services: p.services.Map(), Node: &cluster.Node{}}, &plan.Options{}, p.last)
	if err := p.lab.Node1.Do(func() error { return syncErr(p.backend, p.last) }); err != nil {
		p.t.Fatal(err)
	}
}

// set gives a Service endpoints; packets go to that of number 0.
func (p *picks) set(number, n int) {
	slice := &cluster.EndpointSlice{Name: "a", Ports: []cluster.EndpointPort{{Protocol: cluster.UDP, Port: 5353}}}
	for i := range n {
		slice.Endpoints = append(slice.Endpoints, cluster.Endpoint{Addr: addrAt(10<<24|244<<16|2<<8, i), Conditions: cluster.Ready | cluster.Serving})
	}
	name := cluster.ServiceName{Namespace: "default", Name: fmt.Sprint("dns-", number)}
	vip := picksVIP
	vip[2] += byte(number)
	p.services.Set(name, &cluster.Service{Name: name, ClusterIPs: []netip.Addr{netip.AddrFrom4(vip)},
		Ports: []cluster.ServicePort{{Protocol: cluster.UDP, Port: 53}}, Slices: []*cluster.EndpointSlice{slice}})
}

// send sends datagrams until stop says so, and tells how many.
func (p *picks) send(stop func(sent int) bool) (sent int) {
	err := p.lab.Node1.Do(func() error {
		socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(socket)
		to := &unix.SockaddrInet4{Addr: picksVIP, Port: 53}
		for ; !stop(sent); sent++ {
			if err := unix.Sendto(socket, []byte{0}, 0, to); !errors.Is(err, unix.EPERM) {
				return fmt.Errorf("a datagram was not dropped: %w", err)
			}
		}
		return nil
	})
	if err != nil {
		p.t.Error(err)
	}
	return sent
}

// drawn counts, by endpoint, what was drawn since the pool last changed.
func (p *picks) drawn() map[netip.AddrPort]uint64 {
	p.t.Helper()
	counts := map[netip.AddrPort]uint64{}
	for e, err := range p.backend.families[0].table.Elements(p.t.Context(), mapEndpoints) {
		if err != nil {
			p.t.Fatal(err)
		}
		endpoint, err := decoder{cluster.IPv4}.endpoint(e.Value)
		if err != nil {
			p.t.Fatal(err)
		}
		counts[endpoint] = e.Packets
	}
	return counts
}

// TestKernelPicksAreUniform draws a million times from pools of 2 to 1,000 endpoints. The bound on chi-square is one
// that a fair choice exceeds once in 10⁹ times (by Wilson and Hilferty's approximation).
func TestKernelPicksAreUniform(t *testing.T) {
	p := newPicks(t)
	for _, n := range []int{2, 10, 100, 1000} {
		p.scale(n)
		before := p.drawn()
		const picks = 1_000_000
		p.send(func(sent int) bool { return sent == picks })
		sum, chi := 0.0, 0.0
		for endpoint, count := range p.drawn() {
			drawn := float64(count - before[endpoint])
			want := float64(picks) / float64(n)
			sum, chi = sum+drawn, chi+(drawn-want)*(drawn-want)/want
		}
		free := float64(n - 1)
		bound := free * math.Pow(1-2/(9*free)+6*math.Sqrt(2/(9*free)), 3)
		t.Logf("%d picks among %d endpoints: chi-square %.1f, bound %.1f", picks, n, chi, bound)
		if sum != picks || chi > bound {
			t.Errorf("%d endpoints: %.0f of %d picks found one; chi-square %.1f, want at most %.1f", n, sum, picks, chi, bound)
		}
	}
}

// TestKernelPicksAmidChanges draws while pools grow and shrink: every connection finds an endpoint, and none one that
// was taken away before it began.
func TestKernelPicksAmidChanges(t *testing.T) {
	p := newPicks(t)
	p.scale(4)
	var stop atomic.Bool
	sent := make(chan int)
	go func() { sent <- p.send(func(int) bool { return stop.Load() }) }()
	changes := 0
	scale := func() {
		for began := time.Now(); time.Since(began) < 5*time.Second; changes++ {
			p.scale(1 + (changes*7)%4)
		}
	}
	scale() // where the chains for as many slots come and go with the pool
	for number := range 4 {
		p.set(1+number, 1+number)
	}
	scale() // where other Services need them too
	p.scale(1)
	p.nft("add", "element", "ip", "test", "gone", "{ 10.244.2.1, 10.244.2.2, 10.244.2.3 }")
	time.Sleep(100 * time.Millisecond)
	stop.Store(true)
	n := <-sent
	untranslated, removed := p.counted("untranslated"), p.counted("removed")
	t.Logf("%d picks amid %d changes: %d found no endpoint, %d one that was gone", n, changes, untranslated, removed)
	if untranslated+removed > 0 {
		t.Errorf("of %d picks amid %d changes %d found no endpoint, and %d one that was gone", n, changes, untranslated, removed)
	}
}
