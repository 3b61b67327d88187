package metrics

import (
	"net/netip"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// TestProblems follows two Services into and out of problems. TestOneJudge compares the metric with the judge.
func TestProblems(t *testing.T) {
	f := newFixture(t)
	want := func(when string, missing, without, local, contested string) {
		t.Helper()
		f.syncAll()
		t.Log(when)
		f.expect(`serviceproxy_services_with_problems{reason=NoSuchPort} ` + missing)
		f.expect(`serviceproxy_services_with_problems{reason=NoEndpoints} ` + without)
		f.expect(`serviceproxy_services_with_problems{reason=NoLocalEndpoints} ` + local)
		f.expect(`serviceproxy_services_with_problems{reason=Contested} ` + contested)
	}
	f.slice("a", "10.0.0.1", start)
	f.slice("b", "10.0.0.2", start)
	f.change("b", func(s *cluster.Service) { s.Ports[0].NodePort = 0 })
	want("b has the cluster IPs of a", "0", "1", "0", "1")
	f.change("b", func(s *cluster.Service) {
		s.ClusterIPs = []netip.Addr{netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::2")}
	})
	want("both have an endpoint in one family, and none in the other", "0", "2", "0", "0")
	f.change("a", func(s *cluster.Service) { s.ClusterIPs = s.ClusterIPs[:1] })
	f.change("b", func(s *cluster.Service) { s.ClusterIPs = s.ClusterIPs[:1] })
	want("served", "0", "0", "0", "0")
	f.slice("b", "", start)
	want("b has none", "0", "1", "0", "0")
	f.slice("b", "10.0.0.2", start)
	f.change("b", func(s *cluster.Service) {
		s.Slices[0].Ports = []cluster.EndpointPort{{Name: "htpp", Protocol: cluster.TCP, Port: 80}}
	})
	want("b's port is misspelt", "1", "1", "0", "0")
	f.change("a", func(s *cluster.Service) { s.InternalPolicy = cluster.PolicyLocal })
	want("a has no local endpoint", "1", "1", "1", "0")
	external := &cluster.External{LoadBalancerIPs: []netip.Addr{netip.MustParseAddr("198.51.100.1")}}
	f.change("a", func(s *cluster.Service) { s.External = external })
	f.change("b", func(s *cluster.Service) { s.External, s.ExternalPolicy = external, cluster.PolicyLocal })
	want("b does not get a's load balancer IP, so that it is not without endpoints there", "1", "1", "1", "1")
	f.services = f.services.Delete(cluster.ServiceName{Namespace: "ns", Name: "a"})
	want("a is deleted", "1", "1", "0", "0")
}
