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
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
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
	return &cluster.Snapshot{Services: all, Node: &cluster.Node{}}
}

func TestChanged(t *testing.T) {
	var (
		first  = services(map[string][]byte{"a": {1, 2, 3}})
		second = services(map[string][]byte{"a": {2, 3, 4, 5}, "b": {}})
		third  = services(map[string][]byte{"b": {9}})
	)
	for _, c := range []struct {
		name  string
		level int
		syncs []*cluster.Snapshot // of which nil is one that fails to program third
		want  string
	}{
		{"first", 4, []*cluster.Snapshot{first}, ""},
		{"changed and added", 4, []*cluster.Snapshot{first, second}, `"Service changed" service="ns/a" ports=2 endpoints=4 endpointsAdded=2 endpointsRemoved=1
"Service added" service="ns/b" ports=2 endpoints=0
`},
		{"failed", 4, []*cluster.Snapshot{second, nil}, ""},
		{"after the failure", 4, []*cluster.Snapshot{first, nil, third}, `"Service removed" service="ns/a"
"Service added" service="ns/b" ports=2 endpoints=1
`},
		{"lower level", 3, []*cluster.Snapshot{first, second}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log bytes.Buffer
			logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log), textlogger.Verbosity(c.level)))
			reporter, history := NewReporter(ReporterConfig{Logger: logger}), proxy.History{}
			for _, snapshot := range c.syncs {
				result := backend.Result{}
				if snapshot == nil {
					snapshot, result.Err = third, errors.New("no")
				}
				reporter.changed(history.Add(&proxy.Sync{Plan: plan.Compute(snapshot, &plan.Options{}, nil), Results: []backend.Result{result}}))
			}
			got := regexp.MustCompile(`(?m)^I.*?\] `).ReplaceAllString(log.String(), "")
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("logged (-want +got):\n%s", diff)
			}
		})
	}
}
