package conntrack

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// The connections of these tests, of node ports, cluster IPs and another node's address.
const (
	webA     = "10.96.0.20:53 10.244.0.1:5353 connection"
	webB     = "10.96.0.20:53 10.244.0.2:5353 connection"
	webA6    = "[fd00:96::20]:53 [fd00:244::1]:5353 connection"
	webPortA = "192.0.2.1:30053 10.244.0.1:5353 connection"
	foreignA = "203.0.113.99:8080 10.244.0.1:5353 connection"
	sctpA    = "10.96.0.20:53 10.244.0.1:5353 association"
	sctpB    = "10.96.0.20:53 10.244.0.2:5353 association"
	sctpA6   = "[fd00:96::20]:53 [fd00:244::1]:5353 association"
)

// resetting is a fixture with the gate ResetGoneEndpoints.
type resetting struct {
	*fixture
	aborted []string
	reset   int
	err     error
}

// runResetting runs a test with a fixture that resets connections.
func runResetting(t *testing.T, test func(f *resetting), flows ...string) {
	t.Helper()
	r := &resetting{err: fs.ErrNotExist}
	resets := &Resets{
		Abort: func(client, server netip.AddrPort) error {
			r.aborted = append(r.aborted, fmt.Sprint(client, " ", server))
			return r.err
		},
		Done: func(_ cluster.Family, connections int) { r.reset += connections },
	}
	runWith(t, resets, func(f *fixture) {
		r.fixture = f
		f.node.Interfaces = addrs("192.0.2.1", "203.0.113.1")
		test(r)
	}, flows...)
}

// step changes the Service, and checks the flows when endpoints that left are gone.
func (f *resetting) step(s *cluster.Service, want ...string) {
	f.Helper()
	time.Sleep(longestPause)
	f.set(s)
	f.sync()
	time.Sleep(moves)
	f.wantFlows(want...)
}

// TestGoneEndpoints resets the connections to endpoints that no slice lists any more, and no others.
func TestGoneEndpoints(t *testing.T) {
	all := []string{webA, webB, webA6, webPortA, foreignA}
	runResetting(t, func(f *resetting) {
		f.step(web("10.244.0.2"), all...) // endpoints that left before the proxy was started
		f.step(web("10.244.0.1", "10.244.0.2", "fd00:244::1"), all...)
		f.step(web("!10.244.0.1", "10.244.0.2", "fd00:244::1"), all...)
		other := web("10.244.0.1")
		other.Name.Name, other.ClusterIPs, other.External, other.Ports[0].NodePort = "other", addrs("10.96.0.21"), nil, 0
		f.step(other, all...)
		f.step(web("10.244.0.2", "fd00:244::1"), all...) // the other Service lists it
		f.step(web("10.244.0.1", "10.244.0.2", "fd00:244::1"), all...)
		f.services = f.services.Delete(other.Name)
		f.step(web("10.244.0.2", "fd00:244::1"), webB, webA6, foreignA)
		f.step(web(), foreignA)
		if f.reset != 4 {
			f.Errorf("%d resets, want 4", f.reset)
		}
	}, all...)
}

// TestGoneService leaves the connections of a Service that is deleted.
func TestGoneService(t *testing.T) {
	runResetting(t, func(f *resetting) {
		f.set(web("10.244.0.1"))
		f.sync()
		time.Sleep(longestPause)
		f.services = f.services.Delete(web().Name)
		f.sync()
		time.Sleep(moves)
		f.wantFlows(webA)
	}, webA)
}

// TestGoneWithoutGate leaves TCP and SCTP alone.
func TestGoneWithoutGate(t *testing.T) {
	for name, test := range map[string]struct {
		protocol cluster.Protocol
		flow     string
	}{"TCP": {cluster.TCP, webA}, "SCTP": {cluster.SCTP, sctpA}} {
		t.Run(name, func(t *testing.T) {
			run(t, func(f *fixture) {
				for _, endpoints := range [][]string{{"10.244.0.1"}, nil} {
					f.set(of(test.protocol, endpoints...))
					f.sync()
					time.Sleep(longestPause)
				}
				f.wantFlows(test.flow)
			}, test.flow)
		})
	}
}

// TestOwnSockets aborts the node's own sockets, and goes on without if the kernel cannot.
func TestOwnSockets(t *testing.T) {
	runResetting(t, func(f *resetting) {
		f.set(web("10.244.0.1", "10.244.0.2", "fd00:244::1"))
		f.sync()
		time.Sleep(longestPause)
		f.set(web("10.244.0.2"))
		f.err = errors.New("the kernel cannot")
		f.sync()
		time.Sleep(moves)
		f.wantFlows(webB)
		want := []string{"203.0.113.1:1000 10.96.0.20:53"} // the IPv6 client is none of the node's own
		if diff := cmp.Diff(want, f.aborted); diff != "" {
			f.Errorf("aborted (-want +got):\n%s", diff)
		}
	}, webA, webB, webA6)
}

// TestResetsAreLimited has more IPv4 connections to reset than their share of the limit: they remain to be done after the pause, those of IPv6
// do not.
func TestResetsAreLimited(t *testing.T) {
	runResetting(t, func(f *resetting) {
		share := maxResets / len(families)
		for port := range uint16(share + 2) {
			f.flow(port, webA)
		}
		f.flow(1, webA6)
		f.set(web())
		f.sync()
		time.Sleep(longestPause)
		f.Reconciler.mu.Lock()
		for i, left := range addrs("10.244.0.1", "fd00:244::1") { // both in one round
			f.add(families[i], work{left: map[netip.Addr]bool{left: true}})
		}
		f.Reconciler.mu.Unlock()
		f.wantFlows(webA, webA)
		f.sync() // for the race detector: after the reading
		time.Sleep(resetPause)
		f.wantFlows()
		if f.reset != share+3 {
			f.Errorf("%d resets, want %d", f.reset, share+3)
		}
	})
}

// of returns the Service with another protocol.
func of(protocol cluster.Protocol, endpoints ...string) *cluster.Service {
	s := web(endpoints...)
	s.Ports[0].Protocol, s.Slices[0].Ports[0].Protocol = protocol, protocol
	return s
}

// TestAssociations deletes the SCTP entries to endpoints that no slice lists, also at the start and when a Service is made again.
func TestAssociations(t *testing.T) {
	sctp := func(endpoints ...string) *cluster.Service { return of(cluster.SCTP, endpoints...) }
	const foreign, plain = "203.0.113.99:53 10.244.0.9:5353 association", "192.0.2.1:53 10.244.0.1:5353 association"
	runResetting(t, func(f *resetting) {
		f.step(sctp("10.244.0.1", "!10.244.0.2", "fd00:244::2"), sctpA, sctpB, foreign, plain)
		f.flow(2000, sctpA6)
		f.step(sctp("10.244.0.1", "10.244.0.3", "fd00:244::1"), sctpA, sctpA6, foreign, plain)
		f.services = f.services.Delete(web().Name)
		time.Sleep(longestPause)
		f.sync()
		f.wantFlows(sctpA, sctpA6, foreign, plain)
		f.step(sctp("10.244.0.3", "fd00:244::1"), sctpA6, foreign, plain)
		f.step(web("10.244.0.3"), sctpA6, foreign, plain) // in TCP
	}, sctpA, sctpB, sctpA6, foreign, plain)
}

// TestRelisted keeps a connection whose endpoint is listed again before the sweep comes to it.
func TestRelisted(t *testing.T) {
	for name, synced := range map[string]bool{"in force": true, "being written": false} {
		t.Run(name, func(t *testing.T) {
			runResetting(t, func(f *resetting) {
				f.set(web("10.244.0.1", "10.244.0.2"))
				f.sync()
				time.Sleep(longestPause)
				synctest.Wait()
				f.takes = time.Second
				f.set(web("10.244.0.2"))
				f.sync()
				time.Sleep(moves)
				synctest.Wait()
				f.set(web("10.244.0.1", "10.244.0.2"))
				if synced {
					f.sync()
				} else {
					f.Planned(plan.Compute(&cluster.Snapshot{Services: f.services, Node: f.node}, f.options, f.plan))
				}
				time.Sleep(10 * longestPause)
				f.wantFlows(webA, webB)
			}, webA, webB)
		})
	}
}

// TestMovedEndpoint keeps connections whose endpoint moves to another EndpointSlice, with a moment in which none lists it.
func TestMovedEndpoint(t *testing.T) {
	runResetting(t, func(f *resetting) {
		f.set(web("10.244.0.1", "10.244.0.2"))
		f.sync()
		time.Sleep(longestPause)
		f.set(web("10.244.0.2"))
		f.sync()
		time.Sleep(moves / 2)
		f.set(web("10.244.0.2", "10.244.0.1"))
		f.sync()
		time.Sleep(longestPause)
		f.wantFlows(webA, webB)
	}, webA, webB)
}
