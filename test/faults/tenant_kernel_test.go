//go:build linux

package faults

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/host"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// monsters are Services of one tenant that change completely, all the time.
type monsters struct {
	services, ports, endpoints int
}

// write writes one version of all of them: each has other protocols, and so other frontends, than the one before.
func (m monsters) write(u *cluster.Update, version int) {
	for n := range m.services {
		meta := metav1.ObjectMeta{Namespace: "tenant", Name: fmt.Sprint("monster-", n)}
		address := netip.AddrFrom4([4]byte{10, 97, 0, byte(n)}).String()
		service := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{ClusterIP: address, ClusterIPs: []string{address}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}}}
		protocol := []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP}[version%2]
		for i := range m.ports {
			service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", i), Protocol: protocol, Port: int32(1 + i)})
		}
		u.SetService(service)
		if version > 1 { // the slices have the ports of both protocols
			continue
		}
		meta.Labels = map[string]string{discoveryv1.LabelServiceName: meta.Name}
		slice := &discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4}
		for i := range m.ports {
			for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
				slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: new(fmt.Sprint("p", i)), Protocol: new(protocol), Port: new(int32(1 + i))})
			}
		}
		for i := range m.endpoints {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{clusters.AddrAt(10<<24|1<<20, i).String()}, NodeName: new("elsewhere")})
		}
		u.SetEndpointSlice(slice)
	}
}

// victim writes another namespace's Service, with one pod as its only endpoint.
func victim(u *cluster.Update, pod *netns.Host) {
	meta := metav1.ObjectMeta{Namespace: "victim", Name: "web"}
	address := address(1, cluster.IPv4).Addr().String()
	u.SetService(&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{ClusterIP: address, ClusterIPs: []string{address},
		IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80}}}})
	meta.Labels = map[string]string{discoveryv1.LabelServiceName: meta.Name}
	u.SetEndpointSlice(&discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4,
		Ports:     []discoveryv1.EndpointPort{{Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080)), Name: new("")}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{pod.IPv4.String()}, NodeName: new("elsewhere")}},
	})
}

// work adds up what syncs did.
type work struct {
	proxy.Ignore
	mu              sync.Mutex
	elements, rules int
	cost, longest   time.Duration
	delayed         int
}

func (w *work) Synced(s *proxy.Sync) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, result := range s.Results {
		w.elements, w.rules = w.elements+result.Elements, w.rules+result.Rules
	}
	w.cost, w.longest, w.delayed = w.cost+s.Cost, max(w.longest, s.Finished.Sub(s.Started)), max(w.delayed, len(s.Delayed))
}

// written returns the number of elements and rules so far.
func (w *work) written() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.elements + w.rules
}

// TestKernelBusyTenant lets the Services of one tenant change completely all the time, with as many elements as a Service may have
// (MONSTERS="10x999x1000 60s 3s" for ten with 999 ports and 1000 endpoints, for a minute, and another Service that changes every 3 s;
// fewer by default). Changes of another Service reach packets all the same: at most a few parts of the tenant's changes come before
// them. The log has the times and the processor time.
func TestKernelBusyTenant(t *testing.T) {
	for _, mode := range []struct {
		name  string
		open  func() (backend.Backend, error)
		part  time.Duration
		sizes []monsters
		// most is how many elements and rules may be written from a change of the victim until it is programmed.
		most int
		// pause is the time between two changes of the victim: syncs that follow each other faster are not early any more.
		pause time.Duration
	}{
		{"nftables", openNFT, 20 * time.Millisecond, []monsters{{1, 999, 100}, {10, 100, 100}, {1, 1, 50_000}}, 150_000, 20 * time.Millisecond},
		{"iptables nft", openIPT(ipt.NFT), 200 * time.Millisecond, []monsters{{1, 100, 100}, {10, 20, 100}, {1, 1, 10_000}}, 180_000, 500 * time.Millisecond},
		{"iptables legacy", openIPT(ipt.Legacy), 200 * time.Millisecond, []monsters{{1, 100, 100}}, 180_000, 500 * time.Millisecond},
	} {
		lasts := 8 * time.Second
		if text := os.Getenv("MONSTERS"); text != "" {
			var m monsters
			var texts [2]string
			if _, err := fmt.Sscanf(text, "%dx%dx%d %s %s", &m.services, &m.ports, &m.endpoints, &texts[0], &texts[1]); err != nil {
				t.Fatal(err)
			}
			for i, to := range []*time.Duration{&lasts, &mode.pause} {
				var err error
				if *to, err = time.ParseDuration(texts[i]); err != nil {
					t.Fatal(err)
				}
			}
			mode.sizes = []monsters{m}
		}
		for _, size := range mode.sizes {
			t.Run(fmt.Sprintf("%s/%dx%dx%d", mode.name, size.services, size.ports, size.endpoints), func(t *testing.T) {
				busyTenant(t, mode.open, size, pace{mode.part, mode.pause, lasts}, mode.most)
			})
		}
	}
}

// pace is how long a part should take, the time between two changes of the victim, and how long it changes.
type pace struct{ part, pause, lasts time.Duration }

func busyTenant(t *testing.T, open func() (backend.Backend, error), size monsters, at pace, most int) {
	site := newSite(t)
	site.open(open)
	builder, done, pods := cluster.NewBuilder("node"), &work{}, site.lab.Node1.Pods
	update := func(change func(u *cluster.Update)) {
		if err := builder.Update(change); err != nil {
			t.Fatal(err)
		}
	}
	update(func(u *cluster.Update) { victim(u, pods[0]); size.write(u, 0) })
	running := proxy.New(proxy.Config{Sources: []source.Source{complete{}}, Builder: builder, Backend: proxy.NewQuarantine(site.backend.Backend), Plan: &plan.Options{},
		Observers: []proxy.Observer{done}, MinSyncPeriod: time.Second, PartTime: at.part, SyncPeriod: syncPeriod, CheckPeriod: 250 * time.Millisecond, Measure: host.MeasureCPU})
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer func() { cancel(); all.Wait() }()
	all.Go(func() { _ = site.lab.Node1.Do(func() error { return running.Run(ctx) }) })
	if took := site.reaches(pods[0]); took > time.Minute {
		t.Fatal("the first sync is not in force after a minute")
	}
	for done.written() == 0 { // packets may see it before it ends
		time.Sleep(10 * time.Millisecond)
	}
	all.Go(func() {
		for version := 1; ctx.Err() == nil; version++ {
			update(func(u *cluster.Update) { size.write(u, version) })
			time.Sleep(50 * time.Millisecond)
		}
	})
	began := time.Now()
	done.mu.Lock()
	before := done.cost
	done.mu.Unlock()
	var times []time.Duration
	for turn := 1; time.Since(began) < at.lasts; turn++ {
		written := done.written()
		update(func(u *cluster.Update) { victim(u, pods[turn%2]) })
		times = append(times, site.reaches(pods[turn%2]))
		if n := done.written() - written; n > most {
			t.Errorf("%d elements and rules were written until the victim's change was in force, after %v", n, times[len(times)-1])
		}
		time.Sleep(at.pause)
	}
	slices.Sort(times)
	done.mu.Lock()
	defer done.mu.Unlock()
	t.Logf("%d changes in force after %v at p50, %v at p99, the slowest %v; longest sync %v; %.2f of a core; %d elements, %d rules; %d delayed",
		len(times), times[len(times)/2], times[len(times)*99/100], times[max(0, len(times)-5):], done.longest,
		(done.cost-before).Seconds()/time.Since(began).Seconds(), done.elements, done.rules, done.delayed)
}

// reaches waits until a pod answers for the victim, and returns for how long; a minute if it does not.
func (s *site) reaches(pod *netns.Host) time.Duration {
	began := time.Now()
	for time.Since(began) < time.Minute {
		if answer := (netns.Probe{From: s.lab.Client, To: address(1, cluster.IPv4)}).Send(); answer.Endpoint == pod.Name {
			return time.Since(began)
		}
		time.Sleep(time.Millisecond)
	}
	return time.Minute
}
