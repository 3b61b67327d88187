package browser

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/view"
)

// The words of names. All combinations are some 10,000.
var (
	teams = []string{"shop", "payments", "search", "mail", "ledger", "media", "fraud", "identity", "pricing", "stock"}
	parts = []string{"api", "web", "cache", "db", "worker", "queue", "index", "auth", "events", "gateway", "reports", "sync", "feed", "quota", "rules", "proxy", "export", "import", "store", "admin"}
	kinds = []string{"", "-v2", "-canary", "-internal", "-public", "-eu", "-us", "-ap", "-blue", "-green"}
)

// nameOf returns the name of a Service by its number.
func nameOf(n int) cluster.ServiceName {
	name := parts[n%len(parts)] + kinds[n/len(parts)%len(kinds)]
	if round := n / len(parts) / len(kinds) / len(teams); round > 0 {
		name += fmt.Sprint("-", round)
	}
	return cluster.ServiceName{Namespace: teams[n/len(parts)/len(kinds)%len(teams)], Name: name}
}

// serviceOf returns a Service by its number, with one to six endpoints.
func serviceOf(n int) *cluster.Service {
	random := rand.New(rand.NewPCG(1, uint64(n)))
	s := &cluster.Service{
		Name:       nameOf(n),
		ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96 + byte(n>>14), byte(n >> 6), byte(n&63)*4 + 1}), netip.MustParseAddr(fmt.Sprintf("fd00:10:96::%x", n+1))},
		Ports:      []cluster.ServicePort{{Name: "http", Protocol: cluster.TCP, Port: 80}},
	}
	if n%20 == 1 { // web
		s.Ports = append(s.Ports, cluster.ServicePort{Name: "https", Protocol: cluster.TCP, Port: 443})
		s.External = &cluster.External{LoadBalancerIPs: []netip.Addr{netip.AddrFrom4([4]byte{198, 18, byte(n / 2000), byte(n/20%100 + 1)})}}
		s.ExternalPolicy = cluster.PolicyLocal
	}
	v4, v6 := &cluster.EndpointSlice{Name: s.Name.Name + "-x7k2p"}, &cluster.EndpointSlice{Name: s.Name.Name + "-q9d4w"}
	for _, port := range s.Ports {
		to := cluster.EndpointPort{Name: port.Name, Protocol: port.Protocol, Port: port.Port + 8000}
		v4.Ports, v6.Ports = append(v4.Ports, to), append(v6.Ports, to)
	}
	for e := range 1 + random.IntN(6) {
		conditions := cluster.Ready | cluster.Serving
		if e%3 == 0 {
			conditions |= cluster.Local
		}
		if e == 4 {
			conditions &^= cluster.Ready
		}
		v4.Endpoints = append(v4.Endpoints, cluster.Endpoint{Addr: netip.AddrFrom4([4]byte{10, 244 + byte(e%3), byte(n >> 6), byte(n&63)*4 + byte(e%4)}), Conditions: conditions})
		v6.Endpoints = append(v6.Endpoints, cluster.Endpoint{Addr: netip.MustParseAddr(fmt.Sprintf("fd00:10:244:%x::%x", e, n+1)), Conditions: conditions})
	}
	s.Slices = []*cluster.EndpointSlice{v6, v4}
	switch {
	case n%997 == 500:
		s.Slices = nil
	case n == 801:
		s.External = serviceOf(21).External
	case n%2503 == 900:
		v4.Ports[0].Name, v6.Ports[0].Name = "web", "web"
	case n%1999 == 1201:
		for i := range v4.Endpoints {
			v4.Endpoints[i].Conditions &^= cluster.Local
			v6.Endpoints[i].Conditions &^= cluster.Local
		}
	}
	return s
}

// scene is a running proxy without a kernel.
type scene struct {
	observer *view.Observer
	page     *view.Page
	kernel   *kernel
	services cluster.Map[cluster.ServiceName, *cluster.Service]
	node     *cluster.Node
	options  *plan.Options
	plan     *plan.Plan
	history  proxy.History
}

// kernel counts connections as time goes by.
type kernel struct {
	began time.Time
	err   atomic.Pointer[error]
}

// Connections implements backend.ConnectionCounter: each frontend has a rate of its own, which its endpoints share.
func (k *kernel) Connections(_ context.Context, _ cluster.Family, routes iter.Seq[*plan.Route], endpoints bool) (*backend.Connections, error) {
	if err := k.err.Load(); err != nil {
		return nil, *err
	}
	counts, passed := backend.NewConnections(), time.Since(k.began).Seconds()+3600
	for r := range routes {
		random := rand.New(rand.NewPCG(2, uint64(r.Frontend.Port)<<32|uint64(r.Frontend.Addr.As16()[15])<<8|uint64(r.Frontend.Addr.As16()[14])))
		rate := 12 * random.Float64() * random.Float64() * random.Float64() * random.Float64()
		total := uint64(rate * passed)
		if r.Verdict != plan.Balance {
			counts.Refused[r.Frontend] = total / 50
			continue
		}
		counts.Frontends[r.Frontend] = total
		for _, to := range r.Pool.Endpoints {
			if endpoints {
				share := uint64(float64(total) / float64(len(r.Pool.Endpoints)) * (0.9 + random.Float64()*0.2))
				counts.Endpoints[backend.EndpointCounter{PortEndpoint: backend.PortEndpoint{Port: r.Name, Protocol: r.Frontend.Protocol, Endpoint: to}, In: "endpoints", Frontend: r.Frontend}] = share
			}
		}
	}
	return counts, nil
}

// Counts implements backend.ConnectionCounter.
func (*kernel) Counts(cluster.Family) backend.Counting { return backend.CountEndpoints }

// newScene returns a proxy that has served Services for an hour.
func newScene(services ...*cluster.Service) *scene {
	now := time.Now()
	s := &scene{kernel: &kernel{began: now}, options: &plan.Options{}, node: &cluster.Node{Name: "worker-3", Exists: true, Zone: "eu-1a"}}
	all := s.services.Edit()
	for _, service := range services {
		all.Set(service.Name, service)
	}
	s.services = all.Map()
	s.observer = view.New(view.Config{
		Version: "v0.1.0", Mode: "nftables", Started: now.Add(-3 * time.Hour), Families: []cluster.Family{cluster.IPv4, cluster.IPv6}, Node: "worker-3",
		Unowned: func() []cluster.Unowned {
			return []cluster.Unowned{{Service: cluster.ServiceName{Namespace: "mail", Name: "smtp-old"}, Slices: []*cluster.EndpointSlice{{Name: "smtp-old-h2k8c"}}}}
		},
		Counter: backend.NewSharedCounter(s.kernel), Clock: clock.RealClock{},
	})
	s.page = view.NewPage(s.observer, func() bool { return true })
	random := rand.New(rand.NewPCG(3, 3))
	s.sync(now.Add(-59*time.Minute), 480*time.Millisecond, nil)
	for at := now.Add(-58 * time.Minute); at.Before(now.Add(-5 * time.Second)); at = at.Add(time.Duration(2000+random.IntN(38_000)) * time.Millisecond) {
		for range 1 + random.IntN(3)*random.IntN(5) {
			s.touch(random.IntN(len(services)), services)
		}
		var err error
		if minute := now.Sub(at).Minutes(); minute > 21 && minute < 22 {
			err = errors.New("netlink: device or resource busy")
		}
		s.sync(at, time.Duration(1500+random.ExpFloat64()*2500)*time.Microsecond, err)
	}
	s.observer.Drifted(backend.Drift{Family: cluster.IPv4, What: "chain ip kube-proxy services: 1 rule is missing", Writer: "nft"})
	return s
}

// touch changes a Service.
func (s *scene) touch(n int, services []*cluster.Service) {
	changed := *services[n]
	s.services = s.services.Set(changed.Name, &changed)
}

// sync ends a sync.
func (s *scene) sync(at time.Time, took time.Duration, err error) {
	snapshot := &cluster.Snapshot{Services: s.services, Node: s.node}
	if s.plan == nil || err == nil {
		s.plan = plan.Compute(snapshot, s.options, s.plan)
	}
	s.observer.Synced(s.history.Add(&proxy.Sync{After: snapshot, Plan: s.plan, Started: at, Finished: at.Add(took), Results: []backend.Result{
		{Family: cluster.IPv4, Duration: took * 6 / 10, Elements: 8, Err: err}, {Family: cluster.IPv6, Duration: took * 4 / 10, Elements: 8},
	}}))
}

// hostile are Services whose names no API server accepts, but which a page must show as they are.
func hostile() (all []*cluster.Service) {
	for n, name := range []string{
		`<script>hacked=1</script>`, `<img src=x onerror=hacked=1>`, `"onmouseover="hacked=1`, `'-hacked=1-'`, `</title></style><h1>x`,
		`javascript:hacked=1`, `{{.Script}}`, `a&lt;b`, "\u202etxt.exe", strings.Repeat("w", 253), `a/b?c#d%41`,
	} {
		s := serviceOf(n)
		s.Name = cluster.ServiceName{Namespace: name, Name: name}
		s.Ports[0].Name = name
		for _, slice := range s.Slices {
			slice.Name = name
		}
		all = append(all, s)
	}
	return all
}
