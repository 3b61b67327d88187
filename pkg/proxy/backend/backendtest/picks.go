//go:build linux

package backendtest

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// Picks measures the choice of endpoints at the kernel's full speed: node1 sends datagrams to a cluster IP, and a table of
// the test drops them after DNAT and before conntrack confirms them, so that each one is a new connection.
type Picks struct {
	*Site
	t        *testing.T
	services *cluster.Editor[cluster.ServiceName, *cluster.Service]
	last     *plan.Plan
	options  *plan.Options
	// algorithm and weights are those of the Service that packets are sent to; nil is no weights.
	algorithm cluster.Algorithm
	weights   []uint16
}

// picksVIP is the cluster IP, port 53 in UDP.
var picksVIP = [4]byte{10, 96, 0, 10}

// NewPicks creates a test network and opens the backend in node1, for tables with so many slots.
func NewPicks(t *testing.T, slots int, open Open) *Picks {
	t.Helper()
	p := &Picks{t: t, options: &plan.Options{Balancing: plan.Balancing{On: true, Slots: slots}}, Site: newSite(t, netns.Options{}, open), services: cluster.Map[cluster.ServiceName, *cluster.Service]{}.Edit()}
	// The counters of packets that were not translated, and of packets to an endpoint that was removed.
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

func (p *Picks) nft(args ...string) string {
	p.t.Helper()
	out, err := p.Lab.Node1.Command("nft", args...).Output()
	if err != nil {
		p.t.Fatal(err)
	}
	return string(out)
}

// counted returns the value of a counter.
func (p *Picks) counted(name string) (packets int) {
	p.t.Helper()
	out := p.nft("list", "counter", "ip", "test", name)
	var table, counter string
	if _, err := fmt.Sscanf(out, "table ip %s {\n counter %s {\n packets %d", &table, &counter, &packets); err != nil {
		p.t.Fatalf("%v in\n%s", err, out)
	}
	return packets
}

// scale sets the Service's number of endpoints, and syncs.
func (p *Picks) scale(n int) {
	p.t.Helper()
	p.set(0, n)
	p.last = plan.Compute(&cluster.Snapshot{Services: p.services.Map(), Node: &cluster.Node{}}, p.options, p.last)
	p.Sync(p.t, p.last)
}

// set creates a Service with n endpoints, from 10.244.2.0:5353. Packets are sent to Service number 0.
func (p *Picks) set(number, n int) {
	slice := &cluster.EndpointSlice{Name: "a", Ports: []cluster.EndpointPort{{Protocol: cluster.UDP, Port: 5353}}}
	for i := range n {
		addr := netip.AddrFrom4([4]byte{10, 244, byte(2 + i>>8), byte(i)})
		slice.Endpoints = append(slice.Endpoints, cluster.Endpoint{Addr: addr, Conditions: cluster.Ready | cluster.Serving})
		if p.weights != nil {
			slice.Endpoints[i].Weight = cluster.WeightOf(p.weights[i])
		}
	}
	name := cluster.ServiceName{Namespace: "default", Name: fmt.Sprint("dns-", number)}
	vip := picksVIP
	vip[2] += byte(number)
	p.services.Set(name, &cluster.Service{Name: name, ClusterIPs: []netip.Addr{netip.AddrFrom4(vip)}, Algorithm: p.algorithm,
		Ports: []cluster.ServicePort{{Protocol: cluster.UDP, Port: 53}}, Slices: []*cluster.EndpointSlice{slice}})
}

// send sends datagrams until stop returns true, and returns their number.
func (p *Picks) send(stop func(sent int) bool) (sent int) {
	fresh := p.algorithm == cluster.Maglev
	err := p.Lab.Node1.Do(func() error {
		socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { unix.Close(socket) }()
		to := &unix.SockaddrInet4{Addr: picksVIP, Port: 53}
		for ; !stop(sent); sent++ {
			if fresh { // another source port
				unix.Close(socket)
				if socket, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
					return err
				}
			}
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

// Uniform sends datagrams to pools of 2 to 1,000 endpoints, and fails unless the choice is uniform. drawn returns the number
// of datagrams by endpoint, counted since the last change of the pool or earlier.
//
// Each endpoint's share may differ from the expected one by 1 % of all picks. For large pools this is a weak condition, so
// chi-square is checked too. A uniform choice exceeds its bound once in 10⁹ runs (by Wilson and Hilferty's approximation).
func (p *Picks) Uniform(picks int, drawn func() map[netip.AddrPort]uint64) {
	p.t.Helper()
	for _, n := range []int{2, 10, 100, 1000} {
		p.scale(n)
		before := drawn()
		p.send(func(sent int) bool { return sent == picks })
		sum, chi, off := 0.0, 0.0, 0.0
		want := float64(picks) / float64(n)
		for endpoint, count := range drawn() {
			got := float64(count - before[endpoint])
			sum, chi = sum+got, chi+(got-want)*(got-want)/want
			off = max(off, math.Abs(got-want)/float64(picks))
		}
		free := float64(n - 1)
		bound := free * math.Pow(1-2/(9*free)+6*math.Sqrt(2/(9*free)), 3)
		p.t.Logf("%d picks among %d endpoints: chi-square %.1f, bound %.1f; shares off by at most %.3f %%", picks, n, chi, bound, 100*off)
		if sum != float64(picks) || chi > bound || off > 0.01 {
			p.t.Errorf("%d endpoints: %.0f of %d picks found one; chi-square %.1f, want at most %.1f; a share is off by %.3f %%, want at most 1 %%",
				n, sum, picks, chi, bound, 100*off)
		}
	}
}

// Balanced sends datagrams to four endpoints by each of some algorithms, with and without weights of which one is 0, and fails unless each endpoint's share
// differs from that of its weight by at most 1 % of all picks; for maglev, whose table may be off by as much, from that of its slots. One after the other they are equal but for one pick, and by a hash of the source address
// all are of one endpoint. drawn is as for Uniform.
func (p *Picks) Balanced(picks int, drawn func() map[netip.AddrPort]uint64, by ...cluster.Algorithm) {
	p.t.Helper()
	for _, p.algorithm = range by {
		for _, p.weights = range [][]uint16{nil, {50, 100, 0, 250}} {
			if p.algorithm == cluster.RoundRobin && p.weights != nil && p.options.Balancing.Slots == 0 {
				continue
			}
			p.scale(4)
			before, most := drawn(), 0.0
			p.send(func(sent int) bool { return sent == picks })
			after := drawn()
			for i := range 4 {
				endpoint := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, 2, byte(i)}), 5353)
				want := p.share(i, endpoint)
				share := float64(after[endpoint]-before[endpoint]) / float64(picks)
				most = max(most, share)
				p.t.Logf("%s, weights %v: endpoint %d got %.2f %%, want %.2f %%", p.algorithm, p.weights, i, 100*share, 100*want)
				if off := math.Abs(share - want); p.algorithm != cluster.SourceHash && off > 0.01 || p.algorithm == cluster.RoundRobin && off > 1/float64(picks) {
					p.t.Errorf("%s, weights %v: endpoint %d got %.2f %% of %d picks, want %.2f %%", p.algorithm, p.weights, i, 100*share, picks, 100*want)
				}
			}
			if p.algorithm == cluster.SourceHash && most != 1 {
				p.t.Errorf("%s, weights %v: an endpoint got at most %.2f %% of the picks of one source, want all", p.algorithm, p.weights, 100*most)
			}
		}
	}
	p.algorithm, p.weights = cluster.Random, nil
}

// share returns the share of one of four endpoints: that of its weight, or for maglev of its slots.
func (p *Picks) share(i int, endpoint netip.AddrPort) float64 {
	switch {
	case p.algorithm == cluster.Maglev:
		slots := p.last.RouteTo(netip.AddrPortFrom(netip.AddrFrom4(picksVIP), 53), cluster.UDP).Pool.Slots()
		others := slices.DeleteFunc(slices.Clone(slots), func(slot netip.AddrPort) bool { return slot == endpoint })
		return 1 - float64(len(others))/float64(len(slots))
	case p.weights != nil:
		return float64(p.weights[i]) / 400
	default:
		return 0.25
	}
}

// AmidChanges sends datagrams while pools grow and shrink and the algorithm changes, and fails if one was not translated, or was sent to an endpoint
// that had been removed before.
func (p *Picks) AmidChanges() {
	p.t.Helper()
	p.scale(4)
	var stop atomic.Bool
	defer stop.Store(true) // also if a sync fails
	sent := make(chan int, 1)
	go func() { sent <- p.send(func(int) bool { return stop.Load() }) }()
	changes := 0
	keepScaling := func() {
		for began := time.Now(); time.Since(began) < 2*time.Second; changes++ {
			p.algorithm = cluster.Algorithm(changes / 8 % 4)
			p.scale(1 + (changes*7)%4)
		}
	}
	keepScaling() // rules for a number of endpoints are added and removed with the pool
	for number := range 4 {
		p.set(1+number, 1+number)
	}
	keepScaling() // other Services use these rules too
	p.scale(1)
	p.nft("add", "element", "ip", "test", "gone", "{ 10.244.2.1, 10.244.2.2, 10.244.2.3 }")
	time.Sleep(100 * time.Millisecond)
	stop.Store(true)
	n := <-sent
	untranslated, removed := p.counted("untranslated"), p.counted("removed")
	p.t.Logf("%d picks amid %d changes: %d found no endpoint, %d one that was gone", n, changes, untranslated, removed)
	if untranslated+removed > 0 {
		p.t.Errorf("of %d picks amid %d changes %d found no endpoint, and %d one that was gone", n, changes, untranslated, removed)
	}
}
