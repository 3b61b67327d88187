package metrics

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"k8s.io/component-base/metrics"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/test/hostile"
)

// TestHostileLabels checks that a scrape succeeds, and means the same to its reader, whatever the Services are called.
func TestHostileLabels(t *testing.T) {
	f := newFixture(t)
	for i, text := range hostile.Strings() {
		f.change(text, func(s *cluster.Service) {
			s.ClusterIPs = []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})}
			s.Ports = []cluster.ServicePort{{Name: text, Protocol: cluster.TCP, Port: 80}}
		})
		f.slice(text, "10.0.0.1", start)
	}
	f.syncAll()
	families, err := f.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "service_name" {
					names[label.GetValue()] = true
				}
			}
		}
	}
	if len(names) != len(hostile.Strings()) {
		t.Errorf("%d Services have metrics, want %d", len(names), len(hostile.Strings()))
	}
	page := httptest.NewRecorder()
	metrics.HandlerFor(f.registry, metrics.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	if page.Code != http.StatusOK {
		t.Errorf("status %d: %s", page.Code, page.Body)
	}
	for line := range strings.Lines(page.Body.String()) {
		if !strings.HasPrefix(line, "# ") && !strings.HasPrefix(line, "kubeproxy_") && !strings.HasPrefix(line, "serviceproxy_") {
			t.Errorf("a Service has written a line: %q", line)
		}
	}
}
