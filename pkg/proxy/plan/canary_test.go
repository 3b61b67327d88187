package plan

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// TestCanary has a route of the canary at the first address of the cluster IPs of each family, unless they are unknown or not served.
func TestCanary(t *testing.T) {
	listeners := []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:40000"), netip.MustParseAddrPort("[::1]:40001")}
	for _, test := range []struct {
		name   string
		ranges []string
		change func(o *Options)
		want   string
	}{
		{"both families", []string{"10.96.0.0/16", "fd00:10:96::/112"}, nil, "10.96.0.0:10256/TCP>127.0.0.1:40000 [fd00:10:96::]:10256/TCP>[::1]:40001"},
		{"several ranges", []string{"10.97.0.0/24", "10.96.5.0/16"}, nil, "10.96.0.0:10256/TCP>127.0.0.1:40000"},
		{"unknown ranges", nil, nil, ""},
		{"one family is not served", []string{"10.96.0.0/16", "fd00:10:96::/112"}, func(o *Options) { o.SingleStack = true }, "10.96.0.0:10256/TCP>127.0.0.1:40000"},
		{"not wanted", []string{"10.96.0.0/16"}, func(o *Options) { o.Canary = nil }, ""},
	} {
		w := newWorld(t)
		w.options.Canary = listeners
		if test.change != nil {
			test.change(w.options)
		}
		w.update(func(u *cluster.Update) { u.SetServiceCIDR(serviceCIDR(test.ranges...)) })
		var got []string
		for _, route := range w.plan().Canary {
			if served, _ := w.plan().Frontends.Get(route.Frontend); served == nil || !served.IsCanary() {
				t.Errorf("%s: %s is not served", test.name, route.Frontend)
			}
			got = append(got, fmt.Sprintf("%s>%s", route.Frontend, route.Pool.Endpoints[0]))
		}
		if text := strings.Join(got, " "); text != test.want {
			t.Errorf("%s: %q, want %q", test.name, text, test.want)
		}
	}
}

func serviceCIDR(ranges ...string) *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: ranges}}
}

// TestCanaryGivesWay lets a Service claim the canary's frontend, and give it back. What has not changed keeps its pointer.
func TestCanaryGivesWay(t *testing.T) {
	w := newWorld(t)
	w.options.Canary = []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:40000")}
	w.update(func(u *cluster.Update) { u.SetServiceCIDR(serviceCIDR("10.96.0.0/16")) })
	first := w.plan()
	taker := service(func(s *corev1.Service) {
		s.Spec.ExternalIPs = []string{"10.96.0.0"}
		s.Spec.Ports[0].Port = canaryPort
	})
	w.update(func(u *cluster.Update) { u.SetService(taker) })
	taken := Compute(w.builder.Snapshot(), w.options, first)
	route, _ := taken.Frontends.Get(first.Canary[0].Frontend)
	if route == nil || route.IsCanary() || len(taken.Canary) > 0 || taken.Contested.Len() > 0 {
		t.Errorf("a Service has the canary's frontend, whose route is %+v", route)
	}
	w.update(func(u *cluster.Update) { u.DeleteService(cluster.ServiceName{Namespace: "ns", Name: "web"}) })
	again := Compute(w.builder.Snapshot(), w.options, taken)
	if len(again.Canary) != 1 || !again.Canary[0].equal(first.Canary[0]) || again.Frontends.Len() != first.Frontends.Len() ||
		again.Contested.Len() != first.Contested.Len() || again.ClusterIPs.Len() != first.ClusterIPs.Len() {
		t.Errorf("after it the canary has %+v, want %+v", again.Canary, first.Canary)
	}
	w.update(func(u *cluster.Update) { u.SetNode(node()) })
	if same := Compute(w.builder.Snapshot(), w.options, again); same.Canary[0] != again.Canary[0] {
		t.Error("the route is another one although nothing has changed")
	}
}
