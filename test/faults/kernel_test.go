//go:build linux

package faults

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/host"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/iptables"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/nftables"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// site is a node with a backend, and Services in both families.
type site struct {
	t        *testing.T
	lab      *netns.Lab
	backend  *proxy.Quarantine
	services cluster.Map[cluster.ServiceName, *cluster.Service]
	last     *plan.Plan
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, lab: netns.Start(t, netns.Options{ClientRoutes: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:10:96::/48")}})}
	for _, node := range s.lab.Nodes() {
		for _, pod := range node.Pods {
			if _, err := pod.Serve(netns.TCP, 8080); err != nil {
				t.Fatal(err)
			}
		}
	}
	return s
}

// open opens a backend in the node.
func (s *site) open(open func() (backend.Backend, error)) {
	s.t.Helper()
	var opened backend.Backend
	if err := s.lab.Node1.Do(func() (err error) { opened, err = open(); return err }); err != nil {
		s.t.Fatal(err)
	}
	s.backend = proxy.NewQuarantine(opened)
	s.t.Cleanup(func() { _ = s.backend.Close() })
}

// newServing returns a site whose backend has programmed two Services.
func newServing(t *testing.T, open func() (backend.Backend, error)) *site {
	t.Helper()
	s := newSite(t)
	s.open(open)
	s.set(1, 1, 0)
	s.set(2, 2, 0)
	s.sync()
	return s
}

func openNFT() (backend.Backend, error) {
	return nftables.Mode{Options: nftables.Options{Mark: mark}}.Open(context.Background(), cluster.IPv4, cluster.IPv6)
}

func openIPT(variant ipt.Variant) func() (backend.Backend, error) {
	return func() (backend.Backend, error) {
		var doors []ipt.Tables
		for _, family := range []ipt.Family{ipt.IPv4, ipt.IPv6} {
			door, err := ipt.Open(context.Background(), family, variant)
			if err != nil {
				return nil, err
			}
			doors = append(doors, door)
		}
		notices, err := iptables.OpenNotices(variant, ipt.IPv4, ipt.IPv6)
		if err != nil {
			return nil, err
		}
		return iptables.New(iptables.Options{Mark: mark}, host.Kernel{}, notices, doors...), nil
	}
}

// address returns the cluster IP of a Service.
func address(number int, family cluster.Family) netip.AddrPort {
	if family == cluster.IPv6 {
		return netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf("fd00:10:96::%x", number)), 80)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, 0, byte(number)}), 80)
}

// set sets a Service with a number of endpoints and an affinity.
func (s *site) set(number, endpoints int, affinity time.Duration) {
	slice := &cluster.EndpointSlice{Name: "a", Ports: []cluster.EndpointPort{{Protocol: cluster.TCP, Port: 8080}}}
	for _, node := range s.lab.Nodes() {
		for _, pod := range node.Pods {
			if len(slice.Endpoints) < 2*endpoints {
				for _, addr := range []netip.Addr{pod.IPv4, pod.IPv6} {
					slice.Endpoints = append(slice.Endpoints, cluster.Endpoint{Addr: addr, Conditions: cluster.Ready | cluster.Serving})
				}
			}
		}
	}
	name := cluster.ServiceName{Namespace: "default", Name: fmt.Sprint("web-", number)}
	s.services = s.services.Set(name, &cluster.Service{Name: name, Affinity: affinity,
		ClusterIPs: []netip.Addr{address(number, cluster.IPv4).Addr(), address(number, cluster.IPv6).Addr()},
		Ports:      []cluster.ServicePort{{Protocol: cluster.TCP, Port: 80}}, Slices: []*cluster.EndpointSlice{slice},
	})
}

// sync programs the Services, checks that nothing fails, and returns the quarantined ports of both families.
func (s *site) sync() (v4, v6 []string, again time.Duration) {
	s.t.Helper()
	results := s.attempt()
	for _, r := range results {
		if r.Err != nil {
			s.t.Fatalf("%s: %v", r.Family, r.Err)
		}
		for _, refused := range r.Refused {
			s.t.Logf("%s, after %d failed attempts in %s: %s: %v", r.Family, r.Failed, r.Duration, refused.Port, refused.Cause)
		}
		again = max(again, r.Again)
	}
	return ports(results[0]), ports(results[1]), again
}

// attempt programs the Services, and may fail.
func (s *site) attempt() (results []backend.Result) {
	options := &plan.Options{LocalTraffic: plan.LocalTraffic{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:10:244::/48")}}}
	s.last = plan.Compute(&cluster.Snapshot{Services: s.services, Node: &cluster.Node{}}, options, s.last)
	_ = s.lab.Node1.Do(func() error { results = s.backend.Sync(context.Background(), s.last); return nil })
	return results
}

// answers reports whether a Service answers in a family.
func (s *site) answers(number int, family cluster.Family) bool {
	return netns.Probe{From: s.lab.Client, To: address(number, family)}.Send().Verdict == netns.Answered
}

// poll connects to Services in both families until stop is called, which checks that all connections succeeded.
func (s *site) poll(numbers ...int) (stop func()) {
	var failed, all atomic.Int64
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			for _, number := range numbers {
				for _, family := range []cluster.Family{cluster.IPv4, cluster.IPv6} {
					all.Add(1)
					if !s.answers(number, family) {
						failed.Add(1)
					}
				}
			}
		}
	}()
	return func() {
		cancel()
		<-done
		s.t.Logf("%d of %d connections to other Services failed", failed.Load(), all.Load())
		if failed.Load() > 0 || all.Load() < 10 {
			s.t.Errorf("%d of %d connections to other Services failed", failed.Load(), all.Load())
		}
	}
}

// run runs a command in the node.
func (s *site) run(name string, args ...string) {
	s.t.Helper()
	if out, err := s.lab.Node1.Command(name, args...).CombinedOutput(); err != nil {
		s.t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
}

// isolated checks that only Service 9 is quarantined, in which families if any, that all others answer in both families, and that
// it is served when it is accepted.
func (s *site) isolated(v4, v6 bool, heal func()) {
	s.t.Helper()
	stop := s.poll(1, 2)
	s.set(9, 3, 100*time.Second)
	s.set(3, 1, 0)
	got4, got6, _ := s.sync()
	bad := []string{"default/web-9/TCP"}
	if slices.Equal(got4, bad) != v4 || slices.Equal(got6, bad) != v6 || len(got4)+len(got6) > 2 {
		s.t.Errorf("quarantined in IPv4: %v, in IPv6: %v", got4, got6)
	}
	for _, family := range []cluster.Family{cluster.IPv4, cluster.IPv6} {
		refused := family == cluster.IPv4 && v4 || family == cluster.IPv6 && v6
		if other, refusedOne := s.answers(3, family), s.answers(9, family); !other || refusedOne == refused {
			s.t.Errorf("%s: the new Service 3 answers: %v, Service 9: %v", family, other, refusedOne)
		}
	}
	s.set(3, 2, 0) // a change while it is quarantined
	_, _, again := s.sync()
	heal()
	time.Sleep(again)
	if got4, got6, _ = s.sync(); len(got4)+len(got6) > 0 || !s.answers(9, cluster.IPv4) || !s.answers(9, cluster.IPv6) {
		s.t.Errorf("accepted again: quarantined in IPv4: %v, in IPv6: %v", got4, got6)
	}
	stop()
}

// TestKernelRefusals has real kernels refuse what one Service needs: all other Services work all the time, in both
// families.
func TestKernelRefusals(t *testing.T) {
	for name, sabotage := range map[string]func(*testing.T) []string{
		"chain of another type": func(*testing.T) []string {
			return []string{"add", "chain", "ip", nftables.TableName, "pick-3", "{ type filter hook input priority 0; }"}
		},
		"set instead of a map": func(t *testing.T) []string {
			return []string{"add", "set", "ip", nftables.TableName, affinityMap(t), "{ type ipv4_addr; }"}
		},
	} {
		t.Run("nftables/"+name, func(t *testing.T) {
			command := sabotage(t)
			s := newServing(t, openNFT)
			s.run("nft", "add", "table", "ip", nftables.TableName)
			s.run("nft", command...)
			s.isolated(false, false, func() {}) // the proxy itself removes it when it tries the rules without Service 9
		})
	}
	t.Run("iptables nft/chain of another type", func(t *testing.T) {
		s := newServing(t, openIPT(ipt.NFT))
		const chain = "KUBE-SVC-MN2ABSB5OH426NH5" // that of Service 9
		for _, family := range []string{"ip", "ip6"} {
			s.run("nft", "add", "chain", family, "nat", chain, "{ type nat hook input priority 100; }")
		}
		s.isolated(false, false, func() {}) // as above
	})
	t.Run("iptables legacy/missing extension", func(t *testing.T) {
		s := newServing(t, openIPT(ipt.Legacy))
		all, err := filepath.Glob("/usr/lib/*/xtables/*.so")
		if err != nil || len(all) == 0 {
			t.Fatalf("no extensions of iptables: %v", err)
		}
		dir := t.TempDir()
		for _, path := range all {
			if name := filepath.Base(path); name != "libxt_recent.so" {
				if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
		}
		t.Setenv("XTABLES_LIBDIR", dir)
		s.isolated(true, true, func() { t.Setenv("XTABLES_LIBDIR", filepath.Dir(all[0])) })
	})
}

// affinityMap returns the name of an IPv4 affinity map of Service 9, from a node that serves it.
func affinityMap(t *testing.T) string {
	t.Helper()
	s := newServing(t, openNFT)
	s.set(9, 3, 100*time.Second)
	s.sync()
	maps, err := s.lab.Node1.Command("nft", "list", "maps", "ip").CombinedOutput()
	name := regexp.MustCompile(`affinity-[0-9a-f]+`).FindString(string(maps))
	if err != nil || name == "" {
		t.Fatalf("no affinity map: %v: %s", err, maps)
	}
	return name
}

// TestKernelFullSet starts with a set of ours that another program declared with room for four elements: it gets room for all.
func TestKernelFullSet(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.run("nft", "add", "table", "ip", nftables.TableName)
	s.run("nft", "add map ip kube-proxy endpoints { typeof ip daddr . meta l4proto . th dport . numgen random mod 2 : ip daddr . th dport; counter; size 4; }")
	s.open(openNFT)
	const many = 10
	for number := range many {
		s.set(1+number, 1, 0)
	}
	v4, v6, _ := s.sync()
	if len(v4)+len(v6) > 0 {
		t.Errorf("quarantined in IPv4: %v, in IPv6: %v", v4, v6)
	}
	for number := range many {
		for _, family := range []cluster.Family{cluster.IPv4, cluster.IPv6} {
			if !s.answers(1+number, family) {
				t.Errorf("Service %d does not answer in %s", 1+number, family)
			}
		}
	}
}

// openKilled returns an open function whose doors end after some operations; without a variant of iptables, those of nftables mode.
func openKilled(variant ipt.Variant, dying *failing) func() (backend.Backend, error) {
	if variant == "" {
		return func() (backend.Backend, error) {
			var tables []nft.Table
			for _, family := range []nf.Family{nf.IPv4, nf.IPv6} {
				table, err := nft.Open(family, nftables.TableName)
				if err != nil {
					return nil, err
				}
				tables = append(tables, dying.table(table))
			}
			watch, err := nf.OpenWatch(nf.TableName{Family: unix.NFPROTO_IPV4, Name: nftables.TableName}, nf.TableName{Family: unix.NFPROTO_IPV6, Name: nftables.TableName})
			return nftables.New(nftables.Options{Mark: mark}, watch, tables...), err
		}
	}
	return func() (backend.Backend, error) {
		var doors []ipt.Tables
		for _, family := range []ipt.Family{ipt.IPv4, ipt.IPv6} {
			door, err := ipt.Open(context.Background(), family, variant)
			if err != nil {
				return nil, err
			}
			doors = append(doors, dying.tables(door))
		}
		notices, err := iptables.OpenNotices(variant, ipt.IPv4, ipt.IPv6)
		if err != nil {
			return nil, err
		}
		return iptables.New(iptables.Options{Mark: mark}, host.Kernel{}, notices, doors...), nil
	}
}

// TestKernelKilledBetweenOperations has processes end after each of their operations on the kernel, one after the other,
// each with other Services to write: no connection to the Services that do not change fails, in both families, and in the
// end all are served.
func TestKernelKilledBetweenOperations(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func() (backend.Backend, error){"nftables": openNFT, "iptables nft": openIPT(ipt.NFT), "iptables legacy": openIPT(ipt.Legacy)} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.set(1, 1, 0)
			s.set(2, 3, 10*time.Second)
			s.open(open)
			s.sync()
			stop := s.poll(1, 2)
			_, variant, _ := strings.Cut(name, " ")
			kills := 0
			for broken := true; broken; kills++ {
				dying := killed(1 + kills)
				s.open(openKilled(ipt.Variant(variant), dying))
				s.set(3+kills%3, kills%4, time.Duration(kills%2)*10*time.Second)
				s.attempt()
				_, failed := dying.counts()
				broken = failed > 0
			}
			stop()
			t.Logf("%d kills", kills-1)
			s.open(open)
			for number := 1; number <= 5; number++ {
				s.set(number, 2, 0)
			}
			s.sync()
			for number := 1; number <= 5; number++ {
				for _, family := range []cluster.Family{cluster.IPv4, cluster.IPv6} {
					if !s.answers(number, family) {
						t.Errorf("%s: Service %d does not answer in the end", family, number)
					}
				}
			}
		})
	}
}
