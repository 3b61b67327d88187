package conntrack

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/conntrack"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/conntrack/conntracktest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// table is a Fake whose sweeps take time.
type table struct {
	conntracktest.Fake
	// mu guards the flows: time in a synctest bubble orders goroutines, but not their memory.
	mu    sync.Mutex
	takes time.Duration
	// tries holds the start time of each sweep.
	tries []time.Time
	// broken makes all sweeps of a family fail.
	broken atomic.Uint32
}

func (l *table) Sweep(ctx context.Context, family conntrack.Family, kind conntrack.Kind, unwanted func(*conntrack.Flow) bool) (conntrack.Swept, error) {
	l.tries = append(l.tries, time.Now())
	time.Sleep(l.takes)
	if family == conntrack.Family(l.broken.Load()) {
		return conntrack.Swept{}, errors.New("the kernel has no such table")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Fake.Sweep(ctx, family, kind, unwanted)
}

// fixture is a running Reconciler with a fake table and a small cluster, in a synctest bubble.
type fixture struct {
	*testing.T
	*Reconciler
	*table
	deleted  int
	services cluster.Map[cluster.ServiceName, *cluster.Service]
	options  *plan.Options
	history  proxy.History
	node     *cluster.Node
	plan     *plan.Plan
	refused  []backend.Refusal
}

var (
	families = []cluster.Family{cluster.IPv4, cluster.IPv6}
	dns      = cluster.ServiceName{Namespace: "kube-system", Name: "dns"}
)

// run runs a test with a fixture that has the given flows ("destination reply-source").
func run(t *testing.T, test func(f *fixture), flows ...string) {
	t.Helper()
	runWith(t, nil, test, flows...)
}

// runWith is run with resets, unless they are nil.
func runWith(t *testing.T, resets *Resets, test func(f *fixture), flows ...string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{T: t, table: &table{}, options: &plan.Options{NodePorts: plan.NodePortAddresses{Primary: true}, ServeExternalIPs: true},
			node: &cluster.Node{Name: "n", Addresses: addrs("192.0.2.1", "2001:db8::1")}}
		f.Reconciler = New(Config{Families: families, Table: f.table, Resets: resets,
			Swept: func(_ cluster.Family, _ time.Duration, deleted int) { f.deleted += deleted }})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- f.Reconciler.Run(ctx) }()
		for i, text := range flows {
			f.flow(uint16(1000+i), text)
		}
		test(f)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func addrs(texts ...string) (all []netip.Addr) {
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

// kinds are the words that a flow's text ends in; none is UDP.
var kinds = map[string]conntrack.Kind{"tcp": conntrack.UnansweredTCP, "connection": conntrack.TranslatedTCP, "association": conntrack.TranslatedSCTP}

// flow adds a flow of its kind.
func (f *fixture) flow(port uint16, text string) {
	f.Helper()
	ends := strings.Fields(text)
	source := netip.MustParseAddr("203.0.113.1")
	to := netip.MustParseAddrPort(ends[0])
	if to.Addr().Is6() {
		source = netip.MustParseAddr("2001:db8::2")
	}
	flow := conntrack.Flow{Source: netip.AddrPortFrom(source, port), Destination: to, ReplySource: netip.MustParseAddrPort(ends[1])}
	if len(ends) > 2 {
		flow.Kind = kinds[ends[2]]
	}
	f.table.mu.Lock()
	defer f.table.mu.Unlock()
	if err := f.Add(flow); err != nil {
		f.Fatal(err)
	}
}

// wantFlows waits until all goroutines are idle, and checks that exactly these flows are left.
func (f *fixture) wantFlows(want ...string) {
	f.Helper()
	synctest.Wait()
	var got []string
	for _, flow := range f.Flows() {
		text := flow.Destination.String() + " " + flow.ReplySource.String()
		for word, kind := range kinds {
			if flow.Kind == kind {
				text += " " + word
			}
		}
		got = append(got, text)
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		f.Errorf("flows (-want +got):\n%s", diff)
	}
}

// service returns a UDP Service with node port 30053 and these endpoints: ! marks one that no longer serves, ~ one that
// is serving while it terminates, @ one on this node.
func service(name cluster.ServiceName, ips []netip.Addr, endpoints ...string) *cluster.Service {
	s := &cluster.Service{Name: name, ClusterIPs: ips,
		Ports: []cluster.ServicePort{{Protocol: cluster.UDP, Port: 53, NodePort: 30053}}}
	slice := &cluster.EndpointSlice{Name: "s", Ports: []cluster.EndpointPort{{Protocol: cluster.UDP, Port: 5353}}}
	for _, text := range endpoints {
		conditions := cluster.Ready | cluster.Serving
		switch text[0] {
		case '!':
			text, conditions = text[1:], cluster.Terminating
		case '~':
			text, conditions = text[1:], cluster.Serving|cluster.Terminating
		case '@':
			text, conditions = text[1:], cluster.Ready|cluster.Serving|cluster.Local
		}
		slice.Endpoints = append(slice.Endpoints, cluster.Endpoint{Addr: netip.MustParseAddr(text), Conditions: conditions})
	}
	s.Slices = []*cluster.EndpointSlice{slice}
	return s
}

func (f *fixture) set(s *cluster.Service) { f.services = f.services.Set(s.Name, s) }

// sync programs the current state in both families, except those that fail.
func (f *fixture) sync(failing ...cluster.Family) {
	snap := &cluster.Snapshot{Services: f.services, Node: f.node}
	f.plan = plan.Compute(snap, f.options, f.plan)
	f.Planned(f.plan)
	s := &proxy.Sync{After: snap, Plan: f.plan}
	for _, family := range families {
		result := backend.Result{Family: family, Refused: f.refused}
		if slices.Contains(failing, family) {
			result.Err = errors.New("the kernel refused")
		}
		s.Results = append(s.Results, result)
	}
	f.Synced(f.history.Add(s))
}

var dnsIPs = addrs("10.96.0.10", "fd00:96::10")

const (
	toA  = "10.96.0.10:53 10.244.0.1:5353"
	toB  = "10.96.0.10:53 10.244.0.2:5353"
	toA6 = "[fd00:96::10]:53 [fd00:244::1]:5353"
	npA  = "192.0.2.1:30053 10.244.0.1:5353"
)

// TestEndpoints checks that flows stay only with endpoints that serve.
func TestEndpoints(t *testing.T) {
	for _, test := range []struct {
		name      string
		endpoints []string
		want      []string
	}{
		{"all serve", []string{"10.244.0.1", "10.244.0.2", "fd00:244::1"}, []string{toA, toB, toA6, npA}},
		{"one left", []string{"10.244.0.2", "fd00:244::1"}, []string{toB, toA6}},
		{"one no longer serves", []string{"!10.244.0.1", "10.244.0.2", "fd00:244::1"}, []string{toB, toA6}},
		{"one terminates and serves", []string{"~10.244.0.1", "10.244.0.2", "fd00:244::1"}, []string{toA, toB, toA6, npA}},
		{"one of IPv6 left", []string{"10.244.0.1", "10.244.0.2"}, []string{toA, toB, npA}},
		{"none", nil, nil},
		{"a new one", []string{"10.244.0.1", "10.244.0.2", "10.244.0.3", "fd00:244::1"}, []string{toA, toB, toA6, npA}},
	} {
		t.Run(test.name, func(t *testing.T) {
			run(t, func(f *fixture) {
				f.set(service(dns, dnsIPs, "10.244.0.1", "10.244.0.2", "fd00:244::1"))
				f.sync()
				f.wantFlows(toA, toB, toA6, npA)
				f.set(service(dns, dnsIPs, test.endpoints...))
				time.Sleep(longestPause)
				f.sync()
				f.wantFlows(test.want...)
				if f.deleted != 4-len(test.want) {
					f.Errorf("Swept reported %d deletions, want %d", f.deleted, 4-len(test.want))
				}
			}, toA, toB, toA6, npA)
		})
	}
}

// local makes the traffic policies of a Service Local.
func local(s *cluster.Service) *cluster.Service {
	s.InternalPolicy, s.ExternalPolicy = cluster.PolicyLocal, cluster.PolicyLocal
	return s
}

// restricted gives a Service load balancer IPs with source ranges.
func restricted(s *cluster.Service, ranges ...string) *cluster.Service {
	s.External = &cluster.External{LoadBalancerIPs: addrs("198.51.100.7", "2001:db8::7")}
	for _, text := range ranges {
		s.External.SourceRanges = append(s.External.SourceRanges, netip.MustParsePrefix(text))
	}
	return s
}

// TestRestrictions checks that flows end that a change of the Service forbids to their client, which is 203.0.113.1 or 2001:db8::2.
func TestRestrictions(t *testing.T) {
	const (
		vipA  = "198.51.100.7:53 10.244.0.1:5353"
		vipB  = "198.51.100.7:53 10.244.0.2:5353"
		vipB6 = "[2001:db8::7]:53 [fd00:244::2]:5353"
	)
	serve := func(ranges ...string) *cluster.Service {
		return restricted(service(dns, dnsIPs, "@10.244.0.1", "10.244.0.2", "@fd00:244::1", "fd00:244::2"), ranges...)
	}
	internal, external := serve(), serve()
	internal.InternalPolicy, external.ExternalPolicy = cluster.PolicyLocal, cluster.PolicyLocal
	for _, test := range []struct {
		name  string
		after *cluster.Service
		want  []string
	}{
		{"none", serve(), []string{toA, toB, toA6, npA, vipA, vipB, vipB6}},
		{"source ranges with the client", serve("203.0.113.0/24", "2001:db8::/64"), []string{toA, toB, toA6, npA, vipA, vipB, vipB6}},
		{"source ranges without it", serve("203.0.114.0/24", "2001:db9::/64"), []string{toA, toB, toA6, npA}},
		{"source ranges of one family", serve("203.0.114.0/24"), []string{toA, toB, toA6, npA, vipB6}},
		{"internal policy", internal, []string{toA, toA6, npA, vipA, vipB, vipB6}},
		{"external policy", external, []string{toA, toB, toA6, npA, vipA}},
	} {
		t.Run(test.name, func(t *testing.T) {
			run(t, func(f *fixture) {
				f.set(serve())
				f.sync()
				f.wantFlows(toA, toB, toA6, npA, vipA, vipB, vipB6)
				time.Sleep(longestPause)
				f.set(test.after)
				f.sync()
				f.wantFlows(test.want...)
			}, toA, toB, toA6, npA, vipA, vipB, vipB6)
		})
	}
}

// TestChangesDuringSweep checks that a flow stays whose endpoint was added while a sweep reads the table: when its plan is in
// force, and before that, when its rules are being written.
func TestChangesDuringSweep(t *testing.T) {
	const toC = "10.96.0.10:53 10.244.0.3:5353"
	for name, synced := range map[string]bool{"in force": true, "being written": false} {
		t.Run(name, func(t *testing.T) {
			run(t, func(f *fixture) {
				f.set(service(dns, dnsIPs, "10.244.0.1", "10.244.0.2"))
				f.sync()
				f.wantFlows(toA, toB)
				time.Sleep(longestPause)
				f.takes = time.Second
				f.set(service(dns, dnsIPs, "10.244.0.2"))
				f.sync()
				synctest.Wait() // the sweep runs
				f.flow(2000, toC)
				f.set(service(dns, dnsIPs, "10.244.0.2", "10.244.0.3"))
				if synced {
					f.sync()
				} else {
					f.Planned(plan.Compute(&cluster.Snapshot{Services: f.services, Node: f.node}, f.options, f.plan))
				}
				time.Sleep(10 * longestPause)
				f.wantFlows(toB, toC)
			}, toA, toB)
		})
	}
}

// TestPlanWrittenInPart checks that flows to the endpoints of a plan that could not be written whole do not stay.
func TestPlanWrittenInPart(t *testing.T) {
	const toC = "10.96.0.10:53 10.244.0.3:5353"
	run(t, func(f *fixture) {
		f.set(service(dns, dnsIPs, "10.244.0.2"))
		f.sync()
		f.wantFlows(toB)
		f.set(service(dns, dnsIPs, "10.244.0.2", "10.244.0.3"))
		f.sync(cluster.IPv4)
		f.flow(2000, toC)
		f.set(service(dns, dnsIPs, "10.244.0.2"))
		time.Sleep(longestPause)
		f.sync()
		f.wantFlows(toB)
	}, toB)
}

// TestAtStart checks that the first sync deletes flows that became stale while no proxy was running.
func TestAtStart(t *testing.T) {
	const (
		untranslated = "10.96.0.10:53 10.96.0.10:53"
		elsewhere    = "198.51.100.1:53 198.51.100.1:53"
		otherProxy   = "10.96.0.99:53 10.244.0.9:5353"
		samePort     = "203.0.113.7:30053 203.0.113.7:30053"
	)
	run(t, func(f *fixture) {
		f.set(service(dns, dnsIPs, "10.244.0.2"))
		f.sync()
		f.wantFlows(toB, elsewhere, otherProxy, samePort)
	}, toA, toB, untranslated, elsewhere, otherProxy, samePort, npA)
}

// TestFirstEndpoint checks a flow whose packet was neither translated nor refused when the first endpoint was added.
func TestFirstEndpoint(t *testing.T) {
	const untranslated = "192.0.2.1:30053 192.0.2.1:30053"
	run(t, func(f *fixture) {
		f.set(service(dns, dnsIPs))
		f.sync()
		f.wantFlows()
		f.flow(2000, untranslated)
		f.set(service(dns, dnsIPs, "10.244.0.1"))
		time.Sleep(longestPause)
		f.sync()
		f.wantFlows()
	})
}

// TestServiceGone checks that only translated flows of a deleted Service are deleted.
func TestServiceGone(t *testing.T) {
	const own = "192.0.2.1:53 192.0.2.1:53"
	run(t, func(f *fixture) {
		f.set(service(dns, dnsIPs, "10.244.0.1", "fd00:244::1"))
		f.sync()
		f.wantFlows(toA, toA6, npA, own)
		f.services = f.services.Delete(dns)
		f.flow(2000, "192.0.2.1:30053 192.0.2.1:30053")
		time.Sleep(longestPause)
		f.sync()
		f.wantFlows(own, "192.0.2.1:30053 192.0.2.1:30053")
	}, toA, toA6, npA, own)
}

// TestAddressMoves checks that flows are deleted when their address moves to another Service.
func TestAddressMoves(t *testing.T) {
	run(t, func(f *fixture) {
		f.set(service(dns, dnsIPs, "10.244.0.1", "fd00:244::1"))
		f.sync()
		f.wantFlows(toA, toA6, npA)
		f.flow(2000, toB)
		f.services = f.services.Delete(dns)
		f.set(service(cluster.ServiceName{Namespace: "ns", Name: "other"}, dnsIPs, "10.244.0.2", "fd00:244::1"))
		time.Sleep(longestPause)
		f.sync()
		f.wantFlows(toB, toA6)
	}, toA, toA6, npA)
}

// TestNodeAddress serves node ports on an additional address that already has flows.
func TestNodeAddress(t *testing.T) {
	const before = "192.0.2.2:30053 192.0.2.2:30053"
	run(t, func(f *fixture) {
		f.set(service(dns, dnsIPs, "10.244.0.1"))
		f.sync()
		f.wantFlows(npA, before)
		f.node = &cluster.Node{Name: "n", Addresses: addrs("192.0.2.2", "2001:db8::1")}
		time.Sleep(longestPause)
		f.sync()
		f.wantFlows(npA)
	}, npA, before)
}

// web returns a TCP Service with these endpoints.
func web(endpoints ...string) *cluster.Service {
	s := service(cluster.ServiceName{Namespace: "ns", Name: "web"}, addrs("10.96.0.20", "fd00:96::20"), endpoints...)
	s.Ports[0].Protocol, s.Slices[0].Ports[0].Protocol = cluster.TCP, cluster.TCP
	s.External = &cluster.External{ExternalIPs: addrs("198.51.100.7")}
	return s
}

// TestNoWork checks that changes that cannot make a flow stale cause no sweep.
func TestNoWork(t *testing.T) {
	run(t, func(f *fixture) {
		wantSweeps := func(want int, when string) {
			f.Helper()
			time.Sleep(longestPause)
			f.sync()
			synctest.Wait()
			if f.Sweeps != want {
				f.Errorf("%d sweeps %s, want %d", f.Sweeps, when, want)
			}
		}
		wantSweeps(0, "without a Service")
		f.set(web())
		wantSweeps(0, "with a TCP Service that has no endpoint")
		f.set(web("10.244.0.1"))
		wantSweeps(1, "with its first endpoint, in one family")
		f.set(web("10.244.0.1", "10.244.0.2"))
		wantSweeps(1, "with another one")
		f.set(web())
		wantSweeps(1, "with none again")
		f.services = f.services.Delete(cluster.ServiceName{Namespace: "ns", Name: "web"})
		wantSweeps(1, "without the TCP Service")
		f.set(service(dns, dnsIPs, "10.244.0.1", "fd00:244::1"))
		wantSweeps(3, "with a UDP Service, in two families")
		const a, b, a6 = "@10.244.0.1", "10.244.0.2", "@fd00:244::1"
		f.set(service(dns, dnsIPs, a, a6))
		wantSweeps(3, "with all endpoints on this node")
		f.set(local(service(dns, dnsIPs, a, a6)))
		wantSweeps(3, "with policies that no endpoint violates")
		f.set(local(service(dns, dnsIPs, a, b, a6)))
		wantSweeps(3, "with another endpoint")
		f.set(service(dns, dnsIPs, a, b, a6))
		wantSweeps(3, "without the policies")
		f.set(local(service(dns, dnsIPs, a, b, a6)))
		wantSweeps(4, "with policies that an endpoint of one family violates")
		f.set(restricted(service(dns, dnsIPs, a, b, a6)))
		wantSweeps(6, "with load balancer IPs")
		f.set(restricted(service(dns, dnsIPs, a, b, a6), "203.0.113.0/24"))
		wantSweeps(7, "with source ranges, of one family")
		f.set(restricted(service(dns, dnsIPs, a, b, a6), "203.0.113.0/24", "198.51.100.0/24", "2001:db8::/64"))
		wantSweeps(8, "with more source ranges, and the first of the other family")
		f.set(restricted(service(dns, dnsIPs, a, b, a6), "203.0.112.0/23", "198.51.100.0/24", "2001:db8::/64"))
		wantSweeps(8, "with a wider range")
		f.set(restricted(service(dns, dnsIPs, a, b, a6)))
		wantSweeps(8, "without source ranges")
	})
}

// The flows of TestEarlyClients; those that end in "tcp" are unanswered connections.
const (
	earlyClusterIP  = "10.96.0.20:53 10.96.0.20:53 tcp"
	earlyClusterIP6 = "[fd00:96::20]:53 [fd00:96::20]:53 tcp"
	earlyExternalIP = "198.51.100.7:53 198.51.100.7:53 tcp"
	earlyNodePort   = "192.0.2.1:30053 192.0.2.1:30053 tcp"
	otherPort       = "10.96.0.20:54 10.96.0.20:54 tcp"
	otherNode       = "192.0.2.2:30053 192.0.2.2:30053 tcp"
	sameInUDP       = "10.96.0.99:53 10.96.0.99:53"
)

// TestEarlyClients checks that only TCP connections that were started before their frontend was served are deleted.
func TestEarlyClients(t *testing.T) {
	all := []string{earlyClusterIP, earlyClusterIP6, earlyExternalIP, earlyNodePort, otherPort, otherNode, sameInUDP}
	run(t, func(f *fixture) {
		f.sync()
		f.wantFlows(all...)
		f.set(web())
		f.sync()
		f.wantFlows(all...)
		f.set(web("10.244.0.1"))
		f.sync()
		f.wantFlows(earlyClusterIP6, otherPort, otherNode, sameInUDP)
		f.set(web("10.244.0.1", "fd00:244::1"))
		time.Sleep(longestPause)
		f.sync()
		f.wantFlows(otherPort, otherNode, sameInUDP)
		f.node = &cluster.Node{Name: "n", Addresses: addrs("192.0.2.2", "2001:db8::1")}
		time.Sleep(longestPause)
		f.sync()
		f.wantFlows(otherPort, sameInUDP)
	}, all...)
}

// TestEarlyShortCut checks a Service with external policy Local and no local endpoint, which serves only connections from
// the node and its pods.
func TestEarlyShortCut(t *testing.T) {
	run(t, func(f *fixture) {
		local := web("10.244.0.1")
		local.ExternalPolicy = cluster.PolicyLocal
		f.set(local)
		f.sync()
		f.wantFlows()
	}, earlyExternalIP, earlyNodePort)
}

// TestDrift checks that flows which started while the rules were modified externally are deleted.
func TestDrift(t *testing.T) {
	run(t, func(f *fixture) {
		f.set(web("10.244.0.1"))
		f.set(service(dns, dnsIPs, "10.244.0.1"))
		f.sync()
		synctest.Wait()
		time.Sleep(longestPause)
		f.flow(2000, earlyClusterIP)
		f.flow(2001, "10.96.0.10:53 10.96.0.10:53")
		f.sync()
		f.wantFlows(earlyClusterIP, "10.96.0.10:53 10.96.0.10:53")
		f.Drifted(backend.Drift{Family: cluster.IPv4})
		f.wantFlows(earlyClusterIP, "10.96.0.10:53 10.96.0.10:53")
		f.sync(cluster.IPv4)
		f.wantFlows(earlyClusterIP, "10.96.0.10:53 10.96.0.10:53")
		f.sync()
		f.wantFlows()
	})
}

// TestFailedSync checks that rules that could not be programmed make no flow stale.
func TestFailedSync(t *testing.T) {
	run(t, func(f *fixture) {
		f.set(service(dns, dnsIPs, "10.244.0.1", "fd00:244::1"))
		f.sync()
		synctest.Wait()
		f.set(service(dns, dnsIPs, "10.244.0.2"))
		time.Sleep(longestPause)
		f.sync(cluster.IPv4)
		f.wantFlows(toA)
		f.sync()
		time.Sleep(longestPause)
		f.wantFlows()
	}, toA, toA6)
}

// TestReleased checks that a port that the kernel refused and now accepts has no flows of its earlier rules, although the plan is the
// same.
func TestReleased(t *testing.T) {
	run(t, func(f *fixture) {
		f.set(service(dns, dnsIPs, "10.244.0.1"))
		f.sync()
		f.wantFlows()
		time.Sleep(longestPause)
		f.refused = []backend.Refusal{{Port: "kube-system/dns", Kept: true}}
		f.set(service(dns, dnsIPs, "10.244.0.2"))
		f.sync()
		f.wantFlows()
		time.Sleep(longestPause)
		f.flow(1, toA) // by the rules that are kept
		f.sync()
		f.wantFlows(toA)
		f.refused = nil
		f.sync()
		f.wantFlows()
	})
}

// TestOneFamilyFails checks that work which fails for ever in one family does not delay the other family's.
func TestOneFamilyFails(t *testing.T) {
	run(t, func(f *fixture) {
		f.broken.Store(uint32(conntrack.IPv6))
		f.set(service(dns, dnsIPs, "10.244.0.1", "fd00:244::1"))
		f.sync()
		time.Sleep(time.Hour)
		f.wantFlows(toA, toA6)
		f.set(service(dns, dnsIPs, "10.244.0.2"))
		f.sync()
		f.wantFlows(toA6)
		f.broken.Store(0)
		time.Sleep(lastRetry)
		f.wantFlows()
		if len(f.tries) > 40 {
			f.Errorf("%d sweeps in an hour", len(f.tries))
		}
	}, toA, toA6)
}

// TestCoalesces checks that many changes in a second cause few sweeps, and that the newest plan is used.
func TestCoalesces(t *testing.T) {
	run(t, func(f *fixture) {
		f.takes = 20 * time.Millisecond
		for range 200 {
			f.set(service(dns, dnsIPs, "10.244.0.2", "10.244.0.3"))
			f.sync()
			f.set(service(dns, dnsIPs, "10.244.0.2"))
			f.sync()
			time.Sleep(5 * time.Millisecond)
		}
		f.set(service(dns, dnsIPs, "10.244.0.2", "10.244.0.4"))
		f.sync()
		time.Sleep(longestPause)
		f.wantFlows(toB)
		// A second of changes, of which a tenth may be spent on two families at 20 ms each.
		if f.Sweeps > 12 {
			f.Errorf("%d sweeps", f.Sweeps)
		}
	}, toA, toB)
}

// TestRetries checks that a sweep that failed or was interrupted is retried until it succeeds.
func TestRetries(t *testing.T) {
	for name, fail := range map[string]func(*table){
		"read":      func(l *table) { l.FailReads = 6 },
		"interrupt": func(l *table) { l.Interrupt = 6 },
		"delete":    func(l *table) { l.FailDeletes = 6 },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(f *fixture) {
				f.set(service(dns, dnsIPs, "10.244.0.1", "10.244.0.2", "fd00:244::1"))
				f.sync()
				synctest.Wait()
				time.Sleep(longestPause)
				fail(f.table)
				f.services = f.services.Delete(dns)
				f.sync()
				time.Sleep(time.Minute)
				f.wantFlows()
				sweeps := f.Sweeps
				time.Sleep(time.Hour)
				if synctest.Wait(); f.Sweeps != sweeps {
					f.Errorf("%d sweeps after all work was done", f.Sweeps-sweeps)
				}
			}, toA, toB, toA6)
		})
	}
}

// TestRetriesSlowDown checks that the pause between retries doubles and is reset by a success.
func TestRetriesSlowDown(t *testing.T) {
	run(t, func(f *fixture) {
		f.set(service(dns, dnsIPs, "10.244.0.1"))
		f.sync()
		var began []time.Time
		for _, endpoint := range []string{"10.244.0.2", "10.244.0.3"} {
			time.Sleep(time.Hour)
			synctest.Wait()
			f.FailReads = 10
			began = append(began, time.Now())
			f.set(service(dns, dnsIPs, endpoint))
			f.sync()
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		for _, start := range began {
			tries := 0
			for _, at := range f.tries {
				if !at.Before(start) && at.Before(start.Add(time.Minute)) {
					tries++
				}
			}
			if tries != 7 { // after 0, 0.5, 1.5, 3.5, 7.5, 15.5 and 31.5 s
				f.Errorf("%d tries in a minute, want 7", tries)
			}
		}
	})
}

// TestGoneIsBounded deletes UDP Services while sweeps fail for ever: what is remembered of them does not grow without limit, and
// the first ones are remembered.
func TestGoneIsBounded(t *testing.T) {
	r := New(Config{Families: families})
	frontend := func(n int) plan.Frontend {
		return plan.Frontend{Addr: netip.AddrFrom4([4]byte{172, byte(n >> 16), byte(n >> 8), byte(n)}), Protocol: cluster.UDP, Port: 53}
	}
	const each, rounds = 1000, 150
	for round := range rounds {
		gone := map[plan.Frontend]bool{}
		for i := range each {
			gone[frontend(round*each+i)] = true
		}
		r.add(cluster.IPv4, work{udp: true, gone: gone})
		left := r.dirty[cluster.IPv4] // the sweep fails
		delete(r.dirty, cluster.IPv4)
		r.add(cluster.IPv4, left)
	}
	w := r.dirty[cluster.IPv4]
	if len(w.gone) != maxGone || !w.gone[frontend(0)] || !w.udp {
		t.Errorf("%d frontends are remembered, want %d", len(w.gone), maxGone)
	}
}
