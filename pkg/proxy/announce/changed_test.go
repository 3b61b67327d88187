package announce

import (
	"bytes"
	"errors"
	"net/netip"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/klog/v2/textlogger"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// services returns a snapshot with these Services, each with the endpoints 10.0.0.N.
func services(endpoints map[string][]byte) *cluster.Snapshot {
	var all cluster.Map[cluster.ServiceName, *cluster.Service]
	for name, numbers := range endpoints {
		slice := &cluster.EndpointSlice{Name: name}
		for _, n := range numbers {
			slice.Endpoints = append(slice.Endpoints, cluster.Endpoint{Addr: netip.AddrFrom4([4]byte{10, 0, 0, n})})
		}
		s := &cluster.Service{Name: cluster.ServiceName{Namespace: "ns", Name: name}, Ports: make([]cluster.ServicePort, 2), Slices: []*cluster.EndpointSlice{slice}}
		all = all.Set(s.Name, s)
	}
	return &cluster.Snapshot{Services: all}
}

func TestChanged(t *testing.T) {
	var (
		first  = services(map[string][]byte{"a": {1, 2, 3}})
		second = services(map[string][]byte{"a": {2, 3, 4, 5}, "b": {}})
		third  = services(map[string][]byte{"b": {9}})
		failed = []backend.Result{{Err: errors.New("no")}}
	)
	for _, c := range []struct {
		name  string
		level int
		sync  proxy.Sync
		want  string
	}{
		{"first", 4, proxy.Sync{After: first}, ""},
		{"changed and added", 4, proxy.Sync{Before: first, After: second}, `"Service changed" service="ns/a" ports=2 endpoints=4 endpointsAdded=2 endpointsRemoved=1
"Service added" service="ns/b" ports=2 endpoints=0
`},
		{"failed", 4, proxy.Sync{Before: second, After: third, Results: failed}, ""},
		{"after the failure", 4, proxy.Sync{Before: first, After: third}, `"Service removed" service="ns/a"
"Service added" service="ns/b" ports=2 endpoints=1
`},
		{"lower level", 3, proxy.Sync{Before: first, After: second}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log bytes.Buffer
			logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log), textlogger.Verbosity(c.level)))
			NewReporter(ReporterConfig{Logger: logger}).changed(&c.sync)
			got := regexp.MustCompile(`(?m)^I.*?\] `).ReplaceAllString(log.String(), "")
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("logged (-want +got):\n%s", diff)
			}
		})
	}
}
