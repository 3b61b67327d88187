//go:build linux

package backendtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/cases"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
	"github.com/seed-11a05479/kube-proxy/test/laws"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// fenced are two Services. The first has an annotation.
func fenced(annotation string) string {
	return clusters.Service("default/web", "type: LoadBalancer, clusterIP: 10.96.0.10, ports: [{name: http, port: 80, nodePort: 30080}], loadBalancerSourceRanges: [172.18.0.0/24]", annotation) +
		clusters.LoadBalancer("192.0.2.10") +
		clusters.Slice("default/web", "web-1", "{name: http, port: 8080}", "{addresses: [10.244.1.2], nodeName: node1}", "{addresses: [10.244.2.2], nodeName: node2}") +
		clusters.Service("default/other", "clusterIP: 10.96.0.11, ports: [{name: http, port: 80}]") +
		clusters.Slice("default/other", "other-1", "{name: http, port: 8080}", "{addresses: [10.244.2.2], nodeName: node2}")
}

// fences is a test of bounds in one family.
type fences struct {
	*testing.T
	*Bench
	family cluster.Family
	plan   *plan.Plan
}

// Fences sends packets to a Service with bounds: those that exceed them are dropped and counted, in each way to the Service. Another
// Service is not affected. A restarted backend finds nothing to write, changed bounds keep connections, and removed ones leave nothing behind.
func Fences(t *testing.T, open Open) {
	b := NewBench(t, open)
	for _, family := range []cluster.Family{cluster.IPv4, cluster.IPv6} {
		t.Run(family.String(), func(t *testing.T) {
			f := &fences{T: t, Bench: b, family: family}
			f.rates()
			f.restarted(open)
			f.open()
			f.changes()
		})
	}
}

// FloodedNeighbour floods a Service from sources that do not exist, with and without a bound, while a client connects to another Service. With
// the bound hardly any packet leaves a connection tracking entry. The times to connect are in the log.
func FloodedNeighbour(t *testing.T, open Open) {
	f := &fences{T: t, Bench: NewBench(t, open), family: cluster.IPv4}
	const packets, rate = 20_000, 100
	flood := synFlood{netip.MustParseAddr("198.18.0.0"), packets, packets}
	for _, bounds := range []string{"", fmt.Sprint("per-second=", rate)} {
		f.set(bounds)
		_, web := f.routes("web")
		f.connect("without a flood")
		before, began := f.tracked(), time.Now()
		flood.send(t, f.Lab.Client, web[1])
		took, entries := time.Since(began), f.tracked()-before
		t.Logf("bounds %q: %d SYNs in %s leave %d entries", bounds, packets, took.Round(time.Millisecond), entries)
		if most := int(rate * (took.Seconds() + 2)); bounds != "" && (entries > most || entries < rate) || bounds == "" && entries < packets/2 {
			t.Errorf("bounds %q: %d SYNs in %s left %d entries; with the bound %d to %d may be left", bounds, packets, took, entries, rate, most)
		}
		flood.source = f.flooded(flood.next(), web[1])
	}
}

// flooded connects to the other Service during a flood, which another processor sends. It returns a source that no packet had: those of an
// earlier one are not the first packets of connections.
func (f *fences) flooded(source netip.Addr, to netip.AddrPort) netip.Addr {
	f.Helper()
	const perSecond, some = 100_000, 100
	var stop atomic.Bool
	var sender sync.WaitGroup
	flood := synFlood{source, some, some}
	sent, began := 0, time.Now()
	sender.Go(func() {
		onProcessor(f.T, 0, func() {
			for ; !stop.Load(); sent += some {
				flood.send(f.T, f.Lab.Client, to)
				flood.source = flood.next()
				time.Sleep(time.Until(began.Add(time.Second * time.Duration(sent) / perSecond)))
			}
		})
	})
	f.connect("during a flood")
	stop.Store(true)
	sender.Wait()
	f.Logf("flooded by %.0f SYNs a second", float64(sent)/time.Since(began).Seconds())
	return flood.source
}

// onProcessor runs f on one of the processors that this program may use, by number.
func onProcessor(t *testing.T, number int, f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, one unix.CPUSet
	err := unix.SchedGetaffinity(0, &all)
	for cpu := 0; err == nil && one.Count() == 0; cpu++ {
		if all.IsSet(cpu) {
			if number == 0 || all.Count() == 1 {
				one.Set(cpu)
			}
			number--
		}
	}
	if err == nil {
		err = unix.SchedSetaffinity(0, &one)
	}
	if err != nil {
		t.Errorf("run on one processor: %v", err)
	}
	f()
	if err := unix.SchedSetaffinity(0, &all); err != nil {
		t.Errorf("run on all processors: %v", err)
	}
}

// tracked returns the number of connection tracking entries of node1.
func (f *fences) tracked() (n int) {
	f.Helper()
	out, err := f.Lab.Node1.Command("cat", "/proc/sys/net/netfilter/nf_conntrack_count").Output()
	if err == nil {
		_, err = fmt.Sscan(string(out), &n)
	}
	if err != nil {
		f.Fatal(err)
	}
	return n
}

// connect connects to the Service without bounds, many times, and logs how long the kernel took.
func (f *fences) connect(when string) {
	f.Helper()
	const many = 5000
	_, to := f.routes("other")
	var times []time.Duration
	onProcessor(f.T, 1, func() {
		err := f.Lab.Client.Do(func() error {
			for range many {
				took, err := connect(to[0])
				if err != nil {
					return err
				}
				times = append(times, took)
			}
			return nil
		})
		if err != nil {
			f.Fatalf("%s: %v", when, err)
		}
	})
	slices.Sort(times)
	f.Logf("%s: a connection to another Service takes %s (p50), %s (p99), at most %s", when, times[many/2], times[many*99/100], times[many-1])
}

// connect makes a connection, and resets it. Nothing but the kernel is waited for.
func connect(to netip.AddrPort) (took time.Duration, err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	began := time.Now()
	err = unix.Connect(fd, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())})
	took = time.Since(began)
	return took, errors.Join(err, unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}))
}

// set programs the Services with bounds; "" is none.
func (f *fences) set(bounds string) {
	f.Helper()
	annotation := ""
	if bounds != "" {
		annotation = fmt.Sprintf("%s: %q", cluster.AnnotationConnectionLimits, bounds)
	}
	snapshot, err := cases.Snapshot(fenced(annotation), f.family)
	if err != nil {
		f.Fatal(err)
	}
	f.plan = plan.Compute(snapshot, &plan.Options{NodePorts: plan.NodePortAddresses{Primary: true}, MasqueradeAll: true, Fences: plan.Fences{On: true}}, nil)
	f.Sync(f.T, f.plan)
}

// routes returns those of a Service, the node port's last, with where to send.
func (f *fences) routes(name string) (all []*plan.Route, to []netip.AddrPort) {
	service, _ := f.plan.Services.Get(cluster.ServiceName{Namespace: "default", Name: name})
	for _, route := range service.Routes {
		addr := route.Frontend.Addr
		if route.Frontend.IsNodePort() {
			addr = f.Lab.Node1.Addr(netns.Family(f.family))
		}
		all, to = append(all, route), append(to, netip.AddrPortFrom(addr, route.Frontend.Port))
	}
	return all, to
}

// counts returns how many first packets of connections to the first Service were let through, and dropped.
func (f *fences) counts(route *plan.Route) (passed, limited int) {
	f.Helper()
	var counts *backend.Connections
	err := f.Lab.Node1.Do(func() (err error) {
		counts, err = f.Backend.Counters().Connections.Connections(context.Background(), f.family, slices.Values([]*plan.Route{route}), false)
		return err
	})
	if err != nil {
		f.Fatal(err)
	}
	limited = int(counts.Limited[route.Frontend])
	return int(counts.Frontends[route.Frontend]) - limited, limited
}

// rates floods each address of the Service, from many sources and from one.
func (f *fences) rates() {
	const rate, sent = 20, 3000
	for _, bounds := range []string{"per-second=20", "client-per-second=20", "per-second=20, client-per-second=1000, client-open=5, open=5000"} {
		f.set("") // so that there are no counts, and the bounds have not been used
		f.set(bounds)
		routes, tos := f.routes("web")
		if len(routes) != 3 {
			f.Fatalf("%d routes", len(routes))
		}
		for i, to := range tos {
			time.Sleep(1100 * time.Millisecond) // as many may pass at once again
			before, was := f.counts(routes[i])
			began := time.Now()
			synFlood{f.Lab.Client.Addr(netns.Family(f.family)).Prev(), sent, 1}.send(f.T, f.Lab.Client, to)
			took := time.Since(began)
			passed, limited := f.counts(routes[i])
			passed, limited = passed-before, limited-was
			f.Logf("%s, %d SYNs to %s in %s: %d passed, %d were dropped", bounds, sent, to, took.Round(time.Millisecond), passed, limited)
			// Few SYNs are not the first packets of a connection: others had the same port before.
			if most := rate * (took.Seconds() + 1.5); passed+limited > sent || passed+limited < sent-sent/10 || passed < rate && !strings.Contains(bounds, "client-open") || float64(passed) > most {
				f.Errorf("%s: of %d SYNs to %s %d passed and %d were dropped; want %d to %.0f to pass", bounds, sent, to, passed, limited, rate, most)
			}
		}
		f.unaffected()
	}
}

// unaffected connects to the Service without bounds.
func (f *fences) unaffected() {
	f.Helper()
	_, to := f.routes("other")
	if tally := (netns.Probe{From: f.Lab.Client, To: to[0], Protocol: netns.TCP}).Spread(30); tally.Failed() > 0 {
		f.Errorf("the Service without bounds: %s", tally)
	}
}

// restarted opens the backend again, while the kernel knows clients.
func (f *fences) restarted(open Open) {
	f.Helper()
	if err := f.Lab.Node1.Do(func() (err error) {
		if err = f.Backend.Close(); err == nil {
			f.Backend, err = open()
		}
		return err
	}); err != nil {
		f.Fatal(err)
	}
	if elements, rules := laws.Written(f.Sync(f.T, f.plan)); elements+rules > 0 {
		f.Errorf("a restarted backend wrote %d elements and %d rules", elements, rules)
	}
}

// dial opens a connection and reads the first answer; nil if there is none within a time.
func (f *fences) dial(from *netns.Host, to netip.AddrPort, patience time.Duration) net.Conn {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), patience)
	defer cancel()
	conn, err := from.Dial(ctx, "tcp", to.String())
	if err != nil {
		return nil
	}
	f.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := bufio.NewReader(conn).ReadString('\n'); err != nil {
		f.Fatal(err)
	}
	return conn
}

const (
	soon  = 1500 * time.Millisecond
	never = 20 * time.Second
)

// open keeps connections open, up to the bounds of two clients and of the Service.
func (f *fences) open() {
	f.set("client-open=3, open=5")
	_, tos := f.routes("web")
	client, other := f.Lab.Client, f.Lab.Node1.Pods[1]
	var open []net.Conn
	for i, from := range []*netns.Host{client, client, client, other, other} {
		conn := f.dial(from, tos[i%len(tos)], never)
		if open = append(open, conn); conn == nil {
			f.Fatalf("connection %d, of %s: not opened", i+1, from.Name)
		}
		if i == 2 && f.dial(client, tos[0], soon) != nil {
			f.Fatalf("a client opened 4 connections, may have 3")
		}
	}
	if f.dial(other, tos[0], soon) != nil {
		f.Fatal("6 connections are open, 5 may be")
	}
	f.unaffected()
	open[4].Close()
	if f.dial(other, tos[0], never) == nil {
		f.Error("no connection was opened after another was closed")
	}
	for _, conn := range open {
		conn.Close()
	}
}

// changes lowers and removes the bounds while a connection is open.
func (f *fences) changes() {
	f.set("open=1")
	_, tos := f.routes("web")
	conn := f.dial(f.Lab.Client, tos[0], never)
	if conn == nil {
		f.Fatal("no connection was opened")
	}
	for _, bounds := range []string{"client-per-second=1", "open=2", ""} {
		f.set(bounds)
		if _, err := fmt.Fprintln(conn, "more"); err != nil {
			f.Fatal(err)
		}
		if _, err := bufio.NewReader(conn).ReadString('\n'); err != nil {
			f.Fatalf("after the bounds changed to %q: %v", bounds, err)
		}
	}
	for range 5 {
		if f.dial(f.Lab.Client, tos[0], never) == nil {
			f.Error("without bounds no connection was opened")
		}
	}
	for _, command := range [][]string{{"nft", "list", "ruleset"}, {"iptables-legacy-save"}, {"ip6tables-legacy-save"}} {
		out, err := f.Lab.Node1.Command(command[0], command[1:]...).Output()
		if err != nil {
			f.Fatal(err)
		}
		for _, left := range []string{"fence", "rate-", "open-", "hashlimit", "connlimit", "limits"} {
			if strings.Contains(string(out), left) {
				f.Errorf("%q is left behind:\n%s", left, out)
			}
		}
	}
}
