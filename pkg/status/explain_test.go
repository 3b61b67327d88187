package status

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/cases"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

func load(t *testing.T) []*cases.Case {
	t.Helper()
	all, err := cases.Load("../../test/cases")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var objects = clusters.Service("default/web", "clusterIP: 10.96.0.10, ports: [{name: http, port: 80}]") +
	clusters.Slice("default/web", "web-1", "{name: http, port: 8080}",
		"{addresses: [10.244.1.2], nodeName: node1}", "{addresses: [10.244.2.2], nodeName: node2, conditions: {ready: false}}") +
	clusters.Service("other/db", "clusterIP: 10.96.0.11, ports: [{name: sql, port: 5432}]")

func snapshot(t *testing.T, objects string) *cluster.Snapshot {
	t.Helper()
	s, err := cases.Snapshot(objects, cluster.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestListingsAgreeWithPools proves for every case that the endpoints listed as used are those of the pools, and no others.
func TestListingsAgreeWithPools(t *testing.T) {
	for _, c := range load(t) {
		p := c.Plan()
		for name, service := range p.Services.All() {
			spec, _ := c.Snapshot.Services.Get(name)
			type key struct {
				port   string
				family cluster.Family
				policy cluster.Policy
			}
			used := map[key][]string{}
			for listing := range p.Listings(name) {
				for policy, fate := range listing.Fates {
					if fate == plan.Used {
						k := key{spec.Ports[listing.Port].Name + spec.Ports[listing.Port].Protocol.String(), cluster.FamilyOf(listing.Endpoint.Addr()), cluster.Policy(policy)}
						used[k] = append(used[k], listing.Endpoint.String())
					}
				}
			}
			for _, route := range service.Routes {
				k := key{route.Port() + route.Frontend.Protocol.String(), route.Frontend.Family(), route.Policy}
				slices.Sort(used[k])
				want := Texts(route.Pool.Endpoints)
				slices.Sort(want)
				if !slices.Equal(used[k], want) {
					t.Errorf("%s: %s under %s: listed as used %v, sent to %v", c.Name, route.Name, route.Policy, used[k], want)
				}
			}
		}
	}
}

var twoPorts = objects + clusters.Service("default/two", "type: NodePort, clusterIP: 10.96.0.12, "+
	"ports: [{name: http, port: 80, nodePort: 30080}, {name: dns, port: 53, nodePort: 30053, protocol: UDP}, {name: dns-tcp, port: 53, nodePort: 30054}]")

// TestQuestions asks badly, and in all ways that are right.
func TestQuestions(t *testing.T) {
	s := &State{Snapshot: snapshot(t, twoPorts)}
	s.Plan = plan.Compute(s.Snapshot, &plan.Options{}, nil)
	for _, test := range []struct{ from, to, want string }{
		{"node", "10.96.0.10:80", "10.96.0.10:80 TCP Balance"},
		{"", "10.96.0.10:80/udp", "10.96.0.10:80 UDP Reject"},
		{"10.244.1.3", "10.96.0.10:80/TCP", "10.96.0.10:80 TCP Balance"},
		{"external", "192.0.2.99:80", "192.0.2.99:80 TCP Pass"},
		{"node", "default/web", "10.96.0.10:80 TCP Balance"},
		{"node", "default/web:http", "10.96.0.10:80 TCP Balance"},
		{"node", "default/web:80/tcp", "10.96.0.10:80 TCP Balance"},
		{"node", "default/two:dns", "10.96.0.12:53 UDP Reject"},
		{"node", "default/two:53/udp", "10.96.0.12:53 UDP Reject"},
		{"node", "10.96.0.10", "10.96.0.10:80 TCP Balance"},
		{"node", "10.96.0.10:http", "10.96.0.10:80 TCP Balance"},
		{"node", "10.96.0.12:dns/udp", "10.96.0.12:53 UDP Reject"},
		{"node", "http://10.96.0.10", "10.96.0.10:80 TCP Balance"},
		{"node", "https://10.96.0.10:80/path?query", "10.96.0.10:80 TCP Balance"},
		{"fd00::1", "http://[fd00:10:96::10]/", "[fd00:10:96::10]:80 TCP Pass"},
		{"node", "web.default.svc", "10.96.0.10:80 TCP Balance"},
		{"node", "two.default.svc.cluster.local:53/udp", "10.96.0.12:53 UDP Reject"},
		{"node", "http://web.default.svc.cluster.local.:80/", "10.96.0.10:80 TCP Balance"},
		{"external", "default/two:http", "172.18.0.11:30080 TCP Reject"},
		{"fd00::1", "[fd00:10:96::10]:80", "[fd00:10:96::10]:80 TCP Pass"},
	} {
		got, err := s.Explain(Question{From: test.from, To: test.to})
		if err != nil {
			t.Errorf("from %q to %q: %v", test.from, test.to, err)
			continue
		}
		if text := got.To + " " + got.Protocol + " " + got.Verdict; text != test.want {
			t.Errorf("from %q to %q: got %s, want %s", test.from, test.to, text, test.want)
		}
	}
	for _, test := range []struct{ from, to, want string }{
		{"node", "", "is not a destination"},
		{"node", "10.96.0.12", "has several ports: choose one of 10.96.0.12:"},
		{"node", "192.0.2.99", "the port is missing"},
		{"node", "https://web.default.svc", "default/web has no port 443"},
		{"node", ".default.svc", "is not a destination"},
		{"node", "web..svc", "is not a destination"},
		{"node", "10.96.0.10:sql", "10.96.0.10 has no port sql"},
		{"node", "10.96.0.10:http/udp", "10.96.0.10 has no port http"},
		{"node", "10.96.0.10:99999", "is not a destination"},
		{"node", "0.0.0.0:http", "no packet is sent to 0.0.0.0"},
		{"node", "example.org:80", "is not a destination"},
		{"node", "0.0.0.0:80", "must not be 0"},
		{"node", "default/web:", "is not a destination"},
		{"node", "default/web/udp", "is not a destination"},
		{"node", "[fe80::1%eth0]:80", "has a zone"},
		{"node", "10.96.0.10:0", "must not be 0"},
		{"node", "10.96.0.10:80/icmp", `"icmp" is not a protocol`},
		{"node", "[::ffff:10.96.0.10]:80", "ask for 10.96.0.10:80"},
		{"::ffff:10.244.1.3", "10.96.0.10:80", "ask for 10.244.1.3"},
		{"fd00::1", "10.96.0.10:80", "different IP families"},
		{"web-0", "10.96.0.10:80", `"web-0" is not a source`},
		{"node", "default/wbe", "did you mean default/web?"},
		{"node", "default/web:https", "default/web has no port https; it has http (80/TCP)"},
		{"node", "default/web:http/udp", "default/web has no port http"},
		{"node", "default/two", "choose one of http (80/TCP), dns (53/UDP), dns-tcp (53/TCP), as in default/two:80/tcp"},
		{"node", "default/two:53", "several"},
		{"node", "default/two:http/nonsense", `"nonsense" is not a protocol`},
		{"fd00::1", "default/web", "has no address"},
	} {
		got, err := s.Explain(Question{From: test.from, To: test.to})
		if question := (*QuestionError)(nil); !errors.As(err, &question) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("from %q to %q: got %+v, %v; want an error with %q", test.from, test.to, got, err, test.want)
		}
	}
}

// TestListedEndpoints describes Services with more entries of endpoints than are listed: one for each port that is served and
// endpoint.
func TestListedEndpoints(t *testing.T) {
	web := &cluster.Service{Name: cluster.ServiceName{Namespace: "default", Name: "web"}, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.10")}}
	slice := &cluster.EndpointSlice{Name: "web-1"}
	for i := range 100 {
		slice.Endpoints = append(slice.Endpoints, cluster.Endpoint{Addr: netip.AddrFrom4([4]byte{10, 244, 1, byte(i)}), Conditions: cluster.Ready})
	}
	for i := range 300 {
		name := fmt.Sprintf("p%03d", i)
		web.Ports = append(web.Ports, cluster.ServicePort{Name: name, Protocol: cluster.TCP, Port: uint16(1 + i)})
		slice.Ports = append(slice.Ports, cluster.EndpointPort{Name: name, Protocol: cluster.TCP, Port: 8080})
	}
	web.Slices = []*cluster.EndpointSlice{slice}
	s := &State{Snapshot: &cluster.Snapshot{Services: cluster.Map[cluster.ServiceName, *cluster.Service]{}.Set(web.Name, web), Node: &cluster.Node{}}}
	for _, test := range []struct{ limit, listed, others int }{
		{0, maxListed, 30_000 - maxListed},
		{102 * 150, 15_000, 0}, // a slice, a frontend and 100 endpoints for each port
	} {
		s.Plan = plan.Compute(s.Snapshot, &plan.Options{Limits: plan.Limits{Elements: test.limit}}, nil)
		service, listed := s.Service(web.Name, nil), 0
		for i := range service.Ports {
			listed += len(service.Ports[i].Endpoints)
		}
		if listed != test.listed || service.EndpointsNotListed != test.others || len(service.Ports) != 300 {
			t.Errorf("limit %d: %d entries are listed and %d are not, want %d and %d", test.limit, listed, service.EndpointsNotListed, test.listed, test.others)
		}
	}
}

// TestLeftOut proves the reason of each kind of endpoint that is left out.
func TestLeftOut(t *testing.T) {
	const http = "{name: http, port: 8080}"
	all := clusters.Service("default/web", "clusterIP: 10.96.0.10, internalTrafficPolicy: Local, type: NodePort, ports: [{name: http, port: 80, nodePort: 30080}]") +
		clusters.Slice("default/web", "web-1", http, "{addresses: [10.244.1.2], nodeName: node1}", "{addresses: [10.244.2.2], nodeName: node2}",
			"{addresses: [10.244.2.3], nodeName: node2, conditions: {ready: false}}",
			"{addresses: [10.244.1.4], nodeName: node1, conditions: {ready: false, serving: true, terminating: true}}",
			"{addresses: [10.244.1.2], nodeName: node1, conditions: {ready: false}}") +
		clusters.Slice("default/web", "web-3", http, "{addresses: [10.96.0.10]}") +
		clusters.Slice("default/web", "web-2", "{name: htpp, port: 8080}", "{addresses: [10.244.2.4], nodeName: node2}") +
		strings.Replace(clusters.Slice("default/web", "web-6", http, "{addresses: ['fd00:10:244:2::2'], nodeName: node2}"), "IPv4", "IPv6", 1)
	s := &State{Snapshot: snapshot(t, all)}
	s.Plan = plan.Compute(s.Snapshot, &plan.Options{}, nil)
	service := s.Service(cluster.ServiceName{Namespace: "default", Name: "web"}, nil)
	got := map[string]string{}
	for _, e := range service.Ports[0].Endpoints {
		text := "used by " + strings.Join(e.UsedBy, ",")
		for _, left := range e.LeftOut {
			text += " " + left.TrafficPolicy + ":" + left.Reason
		}
		got[e.Address] += text + ";"
	}
	want := map[string]string{
		"10.244.1.2:8080":         "used by Cluster,Local;used by  Cluster:Duplicate Local:Duplicate;",
		"10.244.2.2:8080":         "used by Cluster Local:NotLocal;",
		"10.244.2.3:8080":         "used by  Cluster:NotReady Local:NotReady;",
		"10.244.1.4:8080":         "used by  Cluster:Terminating Local:Terminating;",
		"10.96.0.10:8080":         "used by  Cluster:OwnClusterIP Local:OwnClusterIP;",
		"10.244.2.4":              "used by  Cluster:NoSuchPort Local:NoSuchPort;",
		"[fd00:10:244:2::2]:8080": "used by  Cluster:WrongFamily Local:WrongFamily;",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("endpoints (-want +got):\n%s", diff)
	}
	var reasons []string
	for _, problem := range service.Problems {
		reasons = append(reasons, problem.Reason)
	}
	if diff := cmp.Diff([]string{"NoSuchPort", "FamilyNotServed"}, reasons); diff != "" {
		t.Errorf("problems (-want +got):\n%s\n%+v", diff, service.Problems)
	}
	if want := (v1alpha1.EndpointCounts{Ready: 5, Local: 1, All: 7}); service.Endpoints != want {
		t.Errorf("got %+v, want %+v", service.Endpoints, want)
	}
}

// TestNear proves which names are suggested for a name that does not exist.
func TestNear(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{"web", "wbe", true}, {"web", "webs", true}, {"web", "wed", true}, {"web", "db", false}, {"shpo", "shop", true}, {"shpo", "typo", false},
		{"frontend", "fronetdn", true}, {"frontend", "fornted", false}, {"web", "web", false}, {"", "a", true}, {"", "", false},
	} {
		if got := near(test.a, test.b); got != test.want || near(test.b, test.a) != got {
			t.Errorf("%q and %q: %v, want %v", test.a, test.b, got, test.want)
		}
	}
}
