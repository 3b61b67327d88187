package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// TestLosesEndpoints changes the endpoints of a Service, and wants those that no slice of it lists any more.
func TestLosesEndpoints(t *testing.T) {
	for _, test := range []struct {
		name  string
		after []string
		// other are the endpoints of a second slice, before and after.
		other [2][]string
		want  string
	}{
		{"the same", []string{"10.1.0.1", "10.2.0.1"}, [2][]string{}, "[]"},
		{"one more", []string{"10.1.0.1", "10.2.0.1", "10.2.0.2"}, [2][]string{}, "[]"},
		{"one unready, one terminates", []string{"10.1.0.1 unready", "10.2.0.1 dead"}, [2][]string{}, "[]"},
		{"one less", []string{"10.1.0.1"}, [2][]string{}, "[10.2.0.1]"},
		{"none", nil, [2][]string{}, "[10.1.0.1 10.2.0.1]"},
		{"one moves to another slice", []string{"10.1.0.1"}, [2][]string{nil, {"10.2.0.1"}}, "[]"},
		{"one of another slice goes", []string{"10.1.0.1", "10.2.0.1"}, [2][]string{{"10.2.0.3"}, nil}, "[10.2.0.3]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			state := func(endpoints, others []string) *cluster.Service {
				w.update(func(u *cluster.Update) {
					u.SetService(service())
					u.SetEndpointSlice(slice("a", endpoints...))
					u.SetEndpointSlice(slice("b", others...))
				})
				s, _ := w.builder.Snapshot().Services.Get(cluster.ServiceName{Namespace: "ns", Name: "web"})
				return s
			}
			before := state([]string{"10.1.0.1", "10.2.0.1"}, test.other[0])
			after := state(test.after, test.other[1])
			got := LosesEndpoints(before, after, cluster.TCP, cluster.IPv4)
			slices.SortFunc(got, netip.Addr.Compare)
			if fmt.Sprint(got) != test.want {
				t.Errorf("got %v, want %s", got, test.want)
			}
			for _, none := range [][]netip.Addr{
				LosesEndpoints(before, after, cluster.TCP, cluster.IPv6), LosesEndpoints(before, after, cluster.SCTP, cluster.IPv4),
				LosesEndpoints(nil, after, cluster.TCP, cluster.IPv4), LosesEndpoints(before, nil, cluster.TCP, cluster.IPv4),
			} {
				if none != nil {
					t.Errorf("lost %v in another family or protocol, or with a Service that is new or deleted", none)
				}
			}
		})
	}
}

// TestLists finds endpoints in any condition, of any Service.
func TestLists(t *testing.T) {
	w := newWorld(t)
	other := func(s *corev1.Service) {
		s.Name, s.Spec.ClusterIP, s.Spec.ClusterIPs = "other", "172.30.0.2", []string{"172.30.0.2"}
	}
	w.update(func(u *cluster.Update) {
		u.SetService(service())
		u.SetService(service(other))
		u.SetEndpointSlice(slice("a", "10.1.0.1", "10.2.0.1 unready", "10.2.0.2 dead"))
		elsewhere := slice("b", "10.2.0.3")
		elsewhere.Labels["kubernetes.io/service-name"] = "other"
		u.SetEndpointSlice(elsewhere)
	})
	for addr, want := range map[string]bool{"10.1.0.1": true, "10.2.0.1": true, "10.2.0.2": true, "10.2.0.3": true, "10.2.0.4": false} {
		if got := w.plan().Lists(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s is listed: %t", addr, got)
		}
	}
	if (&Plan{}).Lists(netip.MustParseAddr("10.1.0.1")) {
		t.Error("an empty plan lists an endpoint")
	}
}
