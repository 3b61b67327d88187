package plan

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// claimants returns the Services that claim a frontend, by precedence, and checks that the first one is served.
func claimants(t *testing.T, p *Plan, frontend Frontend) string {
	t.Helper()
	holder, served := p.Frontends.Get(frontend)
	claims, contested := p.Contested.Get(frontend)
	if !contested {
		if !served {
			return ""
		}
		return holder.Service.Name
	}
	if claims.Routes.Len() < 2 || claims.Served() != holder {
		t.Errorf("%s is claimed by %d Services, and the first one is not served", frontend, claims.Routes.Len())
	}
	var names []string
	for route := range claims.Routes.Values() {
		names = append(names, route.Service.Name)
	}
	return strings.Join(names, " ")
}

// TestContested lets Services claim one address in several updates: the oldest one is served.
func TestContested(t *testing.T) {
	w := newWorld(t)
	shared := Frontend{netip.MustParseAddr(virtualIP), cluster.TCP, 80}
	claim := func(name, ip string, hour int) func(*cluster.Update) {
		return func(u *cluster.Update) {
			u.SetService(service(named(name), on(ip), created(hour), func(s *corev1.Service) {
				s.Spec.Type = corev1.ServiceTypeLoadBalancer
				s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: virtualIP}}
			}))
		}
	}
	remove := func(name string) func(*cluster.Update) {
		return func(u *cluster.Update) { u.DeleteService(cluster.ServiceName{Namespace: "ns", Name: name}) }
	}
	var before *Plan
	for _, step := range []struct {
		name   string
		update func(*cluster.Update)
		want   string
	}{
		{"alone", claim("b", "172.30.0.2", 2), "b"},
		{"a younger one is added", claim("c", "172.30.0.3", 3), "b c"},
		{"an older one is added", claim("a", "172.30.0.1", 1), "a b c"},
		{"an equally old one is added: the name decides", claim("b2", "172.30.0.4", 2), "a b b2 c"},
		{"the served one is deleted", remove("a"), "b b2 c"},
		{"the served one is recreated", claim("b", "172.30.0.2", 4), "b2 c b"},
		{"one in the middle is deleted", remove("c"), "b2 b"},
		{"one drops its claim", func(u *cluster.Update) { u.SetService(service(named("b2"), on("172.30.0.4"), created(2))) }, "b"},
		{"and claims the address again", claim("b2", "172.30.0.4", 2), "b2 b"},
		{"all change in one update", func(u *cluster.Update) {
			remove("b2")(u)
			claim("b", "172.30.0.2", 9)(u)
			claim("d", "172.30.0.5", 8)(u)
			claim("e", "172.30.0.6", 7)(u)
		}, "e d b"},
		{"deleted and recreated in one update", func(u *cluster.Update) {
			remove("e")(u)
			claim("e", "172.30.0.6", 10)(u)
		}, "d b e"},
		{"all are deleted", func(u *cluster.Update) {
			for _, name := range []string{"d", "b", "e"} {
				remove(name)(u)
			}
		}, ""},
	} {
		w.update(step.update)
		p := Compute(w.builder.Snapshot(), w.options, before)
		if got := claimants(t, p, shared); got != step.want {
			t.Errorf("%s: got %q, want %q", step.name, got, step.want)
		}
		if diff := differs(contentsOf(w.plan()), contentsOf(p)); diff != "" {
			t.Errorf("%s: an earlier plan changes the result (-without +with):\n%s", step.name, diff)
		}
		before = p
	}
}

// TestContestedKinds lets Services claim one address as different kinds: the kind takes precedence over the age.
func TestContestedKinds(t *testing.T) {
	w := newWorld(t)
	w.options.ServeExternalIPs = true
	external := func(s *corev1.Service) { s.Spec.ExternalIPs = []string{clusterIP} }
	balanced := func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: clusterIP}}
	}
	shared := Frontend{netip.MustParseAddr(clusterIP), cluster.TCP, 80}
	var before *Plan
	for _, step := range []struct {
		name    string
		service *corev1.Service
		want    string
		lost    string
	}{
		{"an external IP", service(named("a"), on("172.30.0.11"), created(1), external), "a", ""},
		{"a younger load balancer IP", service(named("b"), on("172.30.0.12"), created(2), balanced), "b a",
			"served for ns/b, which has it as its load balancer IP"},
		{"a still younger cluster IP", service(named("c"), on(clusterIP), created(3)), "c b a",
			"served for ns/c, which has it as its cluster IP"},
		{"an older external IP", service(named("d"), on("172.30.0.14"), created(0), external), "c b d a",
			"served for ns/c, which has it as its cluster IP"},
		{"the cluster IP changes", service(named("c"), on("172.30.0.13"), created(3)), "b d a",
			"served for ns/b, which has it as its load balancer IP"},
		{"the load balancer IP becomes an external IP", service(named("b"), on("172.30.0.12"), created(2), external), "d a b",
			"served for ns/d, which is older"},
		{"the oldest becomes as old", service(named("d"), on("172.30.0.14"), created(1), external), "a d b", "served for ns/a, which is older"},
		{"the last one becomes as old", service(named("b"), on("172.30.0.12"), created(1), external), "a b d",
			"served for ns/a, which is as old and whose name sorts first"},
	} {
		w.update(func(u *cluster.Update) { u.SetService(step.service) })
		p := Compute(w.builder.Snapshot(), w.options, before)
		if got := claimants(t, p, shared); got != step.want {
			t.Errorf("%s: got %q, want %q", step.name, got, step.want)
		}
		if claims, contested := p.Contested.Get(shared); contested {
			routes := slices.Collect(claims.Routes.Values())
			if got := p.Lost(routes[len(routes)-1]); got != step.lost {
				t.Errorf("%s: the last claim is %q, want %q", step.name, got, step.lost)
			}
			if got := p.Lost(routes[0]); got != "" {
				t.Errorf("%s: the first claim is %q", step.name, got)
			}
		}
		if diff := differs(contentsOf(w.plan()), contentsOf(p)); diff != "" {
			t.Errorf("%s: an earlier plan changes the result (-without +with):\n%s", step.name, diff)
		}
		before = p
	}
}

// TestContestedNodePort lets Services claim one node port, as after a restore of etcd: the older one is served, in each
// family.
func TestContestedNodePort(t *testing.T) {
	w := newWorld(t)
	w.update(func(u *cluster.Update) {
		u.SetService(service(named("a"), on("172.30.0.11"), created(2), everywhere))
		u.SetService(service(named("b"), on("172.30.0.12"), created(1), everywhere))
	})
	if got := claimants(t, w.plan(), Frontend{netip.IPv4Unspecified(), cluster.TCP, 30080}); got != "b a" {
		t.Errorf("got %q, want %q", got, "b a")
	}
}

// TestNotContested uses the same address with different ports and protocols.
func TestNotContested(t *testing.T) {
	w := newWorld(t)
	w.update(func(u *cluster.Update) {
		for i, port := range []corev1.ServicePort{
			{Protocol: corev1.ProtocolTCP, Port: 80}, {Protocol: corev1.ProtocolUDP, Port: 80}, {Protocol: corev1.ProtocolTCP, Port: 81},
		} {
			u.SetService(service(named(string(rune('a'+i))), on("172.30.0."+string(rune('1'+i))), everywhere, func(s *corev1.Service) {
				s.Spec.ExternalIPs = nil
				s.Spec.Ports = []corev1.ServicePort{port}
			}))
		}
	})
	p := w.plan()
	if p.Contested.Len() != 0 {
		t.Errorf("contested: %v", maps.Collect(p.Contested.All()))
	}
	if got := p.Frontends.Len(); got != 6 {
		t.Errorf("got %d frontends, want 6", got)
	}
}

// TestNoContestWithItself uses an address as load balancer IP and external IP of one Service: the load balancer IP counts.
func TestNoContestWithItself(t *testing.T) {
	w := newWorld(t)
	w.options.ServeExternalIPs = true
	w.update(func(u *cluster.Update) {
		u.SetService(service(everywhere, func(s *corev1.Service) {
			s.Spec.ExternalIPs = []string{virtualIP}
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: virtualIP}}
		}))
	})
	p := w.plan()
	if p.Contested.Len() != 0 {
		t.Errorf("contested: %v", maps.Collect(p.Contested.All()))
	}
	if route := p.RouteTo(netip.MustParseAddrPort(virtualIP+":80"), cluster.TCP); route == nil || route.Kind != LoadBalancerIP {
		t.Errorf("the address is served as %+v", route)
	}
}

// TestClusterIPMoves moves a cluster IP from a deleted Service to a new one in one update.
func TestClusterIPMoves(t *testing.T) {
	w := newWorld(t)
	w.update(func(u *cluster.Update) { u.SetService(service(created(1))) })
	before := w.plan()
	w.update(func(u *cluster.Update) {
		u.SetService(service(named("new"), created(2)))
		u.DeleteService(cluster.ServiceName{Namespace: "ns", Name: "web"})
	})
	after := Compute(w.builder.Snapshot(), w.options, before)
	if diff := cmp.Diff([]string{"172.30.0.1:80/TCP cluster IP of ns/new"}, routes(after)); diff != "" {
		t.Errorf("frontends (-want +got):\n%s", diff)
	}
	if n, _ := after.ClusterIPs.Get(netip.MustParseAddr(clusterIP)); n != 1 {
		t.Errorf("the cluster IP is counted %d times", n)
	}
}

// TestTypeChanges alternates the type of a Service.
func TestTypeChanges(t *testing.T) {
	w := newWorld(t)
	types := map[string]*corev1.Service{
		"ClusterIP":    service(),
		"LoadBalancer": service(everywhere),
		"ExternalName": service(func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName }),
		"headless":     service(on(corev1.ClusterIPNone)),
	}
	w.update(func(u *cluster.Update) { u.SetEndpointSlice(slice("s", "10.2.0.1")) })
	var before *Plan
	for step, name := range strings.Fields("ClusterIP LoadBalancer ExternalName LoadBalancer headless ClusterIP ExternalName ClusterIP LoadBalancer ClusterIP") {
		w.update(func(u *cluster.Update) { u.SetService(types[name]) })
		p := Compute(w.builder.Snapshot(), w.options, before)
		want := map[string]int{"ClusterIP": 1, "LoadBalancer": 4}[name]
		if p.Frontends.Len() != want {
			t.Errorf("step %d, %s: got %d frontends, want %d", step, name, p.Frontends.Len(), want)
		}
		if want > 0 && ask(p, localPod, clusterIP+":80") != "10.2.0.1" {
			t.Errorf("step %d, %s: the endpoint is lost", step, name)
		}
		before = p
	}
}
