package plan

import (
	"net/netip"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// TestFences decides about the bounds of Services with and without an annotation, in namespaces with and without bounds.
func TestFences(t *testing.T) {
	bounded := Fences{On: true, Namespaces: map[string]cluster.Fence{"tenant": {PerSecond: 100, Open: 10}, "free": {}, OtherNamespaces: {ClientOpen: 5}}}
	missing := Fences{On: true, Missing: "no module", Namespaces: bounded.Namespaces}
	for _, c := range []struct {
		fences    Fences
		namespace string
		asked     *cluster.AskedFence
		want      string
	}{
		{Fences{On: true}, "tenant", nil, ""},
		{Fences{On: true}, "tenant", &cluster.AskedFence{Fence: cluster.Fence{Open: 3}}, "800 new a second, 3 open"},
		{Fences{}, "tenant", &cluster.AskedFence{Fence: cluster.Fence{Open: 3}, Ignored: "why"}, ""},
		{bounded, "tenant", nil, "100 new a second, 10 open"},
		{bounded, "tenant", &cluster.AskedFence{Fence: cluster.Fence{PerSecond: 1000, Open: 3, ClientOpen: 7}}, "100 new a second, 3 open, 800 new a second of each client, 7 open of each client"},
		{bounded, "tenant", &cluster.AskedFence{Ignored: "why"}, "100 new a second, 10 open"},
		{missing, "tenant", nil, ""},
		{missing, "tenant", &cluster.AskedFence{Fence: cluster.Fence{Open: 3}}, ""},
		{bounded, "free", nil, ""},
		{bounded, "free", &cluster.AskedFence{Fence: cluster.Fence{Open: 3}}, "800 new a second, 3 open"},
		{bounded, "other", nil, "800 new a second of each client, 5 open of each client"},
	} {
		s := &cluster.Service{Name: cluster.ServiceName{Namespace: c.namespace, Name: "web"}, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")},
			Ports: []cluster.ServicePort{{Protocol: cluster.TCP, Port: 80}}, Fence: c.asked}
		p := Compute(&cluster.Snapshot{Services: cluster.Map[cluster.ServiceName, *cluster.Service]{}.Set(s.Name, s), Node: &cluster.Node{}}, &Options{Fences: c.fences}, nil)
		decided, _ := p.Services.Get(s.Name)
		got := ""
		if fence := decided.Fence(); fence != nil {
			got = fence.String()
		}
		invalid := c.fences.On && c.asked != nil && c.asked.Ignored+c.fences.Missing != ""
		if got != c.want || Reasons(p.Problems(s.Name, nil))[ProblemFence] != invalid {
			t.Errorf("%+v, %s, %+v: bounds %q, problems %v; want %q", c.fences, c.namespace, c.asked, got, p.Problems(s.Name, nil), c.want)
		}
	}
}
