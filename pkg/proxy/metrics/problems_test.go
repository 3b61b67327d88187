package metrics

import (
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// TestProblems follows two Services into and out of problems.
func TestProblems(t *testing.T) {
	f := newFixture(t)
	want := func(when string, missing, without, local string) {
		t.Helper()
		f.syncAll()
		t.Log(when)
		f.expect(`serviceproxy_services_with_problems{reason=NoSuchPort} ` + missing)
		f.expect(`serviceproxy_services_with_problems{reason=NoEndpoints} ` + without)
		f.expect(`serviceproxy_services_with_problems{reason=NoLocalEndpoints} ` + local)
	}
	f.slice("a", "10.0.0.1", start)
	f.slice("b", "10.0.0.2", start)
	f.change("b", func(s *cluster.Service) { s.Ports[0].NodePort = 0 })
	want("both have an endpoint in one family, and none in the other", "0", "2", "0")
	f.change("a", func(s *cluster.Service) { s.ClusterIPs = s.ClusterIPs[:1] })
	f.change("b", func(s *cluster.Service) { s.ClusterIPs = s.ClusterIPs[:1] })
	want("served", "0", "0", "0")
	f.slice("b", "", start)
	want("b has none", "0", "1", "0")
	f.slice("b", "10.0.0.2", start)
	f.change("b", func(s *cluster.Service) {
		s.Slices[0].Ports = []cluster.EndpointPort{{Name: "htpp", Protocol: cluster.TCP, Port: 80}}
	})
	want("b's port is misspelt", "1", "1", "0")
	f.change("a", func(s *cluster.Service) { s.InternalPolicy = cluster.PolicyLocal })
	want("a has no local endpoint", "1", "1", "1")
	f.services = f.services.Delete(cluster.ServiceName{Namespace: "ns", Name: "b"})
	want("b is deleted", "0", "0", "1")
}
