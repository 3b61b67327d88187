package view

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/pkg/status"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// TestList searches, selects, sorts and cuts 250 Services. Number 7 has no endpoints, and number 9 has most connections.
func TestList(t *testing.T) {
	sized := clusters.NewSized(250, 2)
	sized.Set(7, 0)
	s := &status.State{Snapshot: &cluster.Snapshot{Services: sized.Services.Map(), Node: &cluster.Node{}}, Plan: sized.Plan()}
	counts := &counters{now: backend.NewConnections(), earlier: backend.NewConnections()}
	counts.now.At = counts.earlier.At.Add(10 * time.Second)
	for route := range s.RoutesOf(clusters.NameAt(9)) {
		counts.now.Frontends[route.Frontend] = 50
	}
	for _, test := range []struct {
		query string
		// total match; first and last are the names at the ends of the page; from is the position of the first.
		total, from int
		first, last string
		links       string
	}{
		{"", 250, 1, "service-0", "service-188", " next=/?page=2#services"},
		{"page=2", 250, 101, "service-189", "service-53", "previous=/#services next=/?page=3#services"},
		{"page=3", 250, 201, "service-54", "service-99", "previous=/?page=2#services "},
		{"page=99", 250, 201, "service-54", "service-99", "previous=/?page=2#services "},
		{"q=service-24", 11, 1, "service-24", "service-249", " "},
		{"q=SERVICE-24+default", 11, 1, "service-24", "service-249", " "},
		{"q=172.0.0.24", 11, 1, "service-24", "service-249", " "},
		{"q=10.0.1.0", 1, 1, "service-1", "service-1", " "},
		{"q=80", 250, 1, "service-0", "service-188", " next=/?page=2&q=80#services"},
		{"q=8080", 0, 0, "", "", " "},
		{"q=absent", 0, 0, "", "", " "},
		{"show=problems", 1, 1, "service-7", "service-7", " "},
		{"show=NoEndpoints", 1, 1, "service-7", "service-7", " "},
		{"show=NoSuchPort", 0, 0, "", "", " "},
		{"sort=-name", 250, 1, "service-99", "service-233", " next=/?page=2&sort=-name#services"},
		{"sort=-rate", 250, 1, "service-9", "service-187", " next=/?page=2&sort=-rate#services"},
		{"sort=-connections", 250, 1, "service-9", "service-187", " next=/?page=2&sort=-connections#services"},
		{"sort=ready", 250, 1, "service-7", "service-187", " next=/?page=2&sort=ready#services"},
		{"sort=-status&q=service-7", 11, 1, "service-7", "service-79", " "},
	} {
		values, err := url.ParseQuery(test.query)
		if err != nil {
			t.Fatal(err)
		}
		q, bad := parseQuery(values)
		if bad != nil {
			t.Fatal(bad)
		}
		heads := slices.Collect(s.Heads(status.Filter{}))
		l := newList(s, newRows(s, heads, counts), q, counts, findings(heads))
		first, last := "", ""
		if len(l.Rows) > 0 {
			first, last = l.Rows[0].Name, l.Rows[len(l.Rows)-1].Name
		}
		links := ""
		if l.Previous != "" {
			links = "previous=" + l.Previous
		}
		links += " "
		if l.Next != "" {
			links += "next=" + l.Next
		}
		got := fmt.Sprint(l.Total, l.First, first, last, links)
		if want := fmt.Sprint(test.total, test.from, test.first, test.last, test.links); got != want {
			t.Errorf("%s: %s, want %s", test.query, got, want)
		}
		if len(l.Rows) != l.Last-l.First+min(1, l.Total) || len(l.Rows) > pageSize {
			t.Errorf("%s: %d items at %d to %d", test.query, len(l.Rows), l.First, l.Last)
		}
	}
}

// TestFindings counts a Service once for each reason, and names the first of many.
func TestFindings(t *testing.T) {
	head := func(name string, reasons ...string) status.Head {
		o := status.Head{Service: &cluster.Service{Name: cluster.ServiceName{Namespace: "a", Name: name}}}
		for _, reason := range reasons {
			o.Problems = append(o.Problems, v1alpha1.Problem{Reason: reason, Message: reason + " of " + name})
		}
		return o
	}
	got := findings([]status.Head{
		head("x", plan.ProblemNoLocalEndpoints, plan.ProblemNoLocalEndpoints), head("y", plan.ProblemNoEndpoints, plan.ProblemNoSuchPort),
		head("z", plan.ProblemNoEndpoints), head("ok"),
	})
	want := []finding{
		{Reason: "NoEndpoints", Tone: bad, Count: 2, More: 1, Noun: "Service", First: "a/y", FirstURL: "/services/a/y", Message: "NoEndpoints of y", URL: "/?show=NoEndpoints#services"},
		{Reason: "NoSuchPort", Tone: bad, Count: 1, Noun: "Service", First: "a/y", FirstURL: "/services/a/y", Message: "NoSuchPort of y", URL: "/?show=NoSuchPort#services"},
		{Reason: "NoLocalEndpoints", Tone: warn, Count: 1, Noun: "Service", First: "a/x", FirstURL: "/services/a/x", Message: "NoLocalEndpoints of x", URL: "/?show=NoLocalEndpoints#services"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the findings differ (-want +got):\n%s", diff)
	}
}

// TestManyServices bounds the size of the page with 10,000 Services, all with problems, and of a Service with 2,000
// endpoints; and checks that a second look does not describe all Services again.
func TestManyServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		sized := clusters.NewSized(10_000, 0)
		all := sized.Services.Map()
		large := &cluster.Service{Name: cluster.ServiceName{Namespace: "a", Name: "large"}, ClusterIPs: []netip.Addr{netip.MustParseAddr("172.30.0.1")},
			Ports: []cluster.ServicePort{{Protocol: cluster.TCP, Port: 80}}, Slices: []*cluster.EndpointSlice{{Ports: []cluster.EndpointPort{{Protocol: cluster.TCP, Port: 80}}}}}
		for n := range 2000 {
			large.Slices[0].Endpoints = append(large.Slices[0].Endpoints, cluster.Endpoint{Addr: clusters.AddrAt(10<<24, n), Conditions: cluster.Ready})
		}
		f.program(&cluster.Snapshot{Services: all.Set(large.Name, large), Node: &cluster.Node{Name: "node1"}}, nil)
		for _, path := range []string{"/", "/services/a/large"} {
			body := f.get(path).Body.String()
			if len(body) > 200_000 {
				t.Errorf("%s has %d bytes", path, len(body))
			}
		}
		if rows := strings.Count(f.get("/").Body.String(), "<tr>\n<th"); rows != pageSize {
			t.Errorf("%d rows, want %d", rows, pageSize)
		}
		before := f.kept()
		if f.get("/"); f.kept() != before || before == nil {
			t.Error("the second look described all Services again")
		}
		f.program(&cluster.Snapshot{Services: all, Node: &cluster.Node{Name: "node1"}}, nil)
		if f.get("/"); len(f.kept().services) != 10_000 {
			t.Errorf("after a change the index has %d Services", len(f.kept().services))
		}
		time.Sleep(2 * idle)
		f.page.meter.mu.Lock()
		defer f.page.meter.mu.Unlock()
		if f.kept() != nil || len(f.page.meter.subjects) > 0 {
			t.Error("the index or counters are still in memory long after the last look")
		}
	})
}

// kept returns the index in memory.
func (f *fixture) kept() *index {
	f.page.mu.Lock()
	defer f.page.mu.Unlock()
	return f.page.index
}

// BenchmarkOverview shows the page of 10,000 Services again and again: unchanged, and after a change.
func BenchmarkOverview(b *testing.B) {
	sized := clusters.NewSized(10_000, 2)
	s := &status.State{Snapshot: &cluster.Snapshot{Services: sized.Services.Map(), Node: &cluster.Node{}}, Plan: sized.Plan(), Info: v1alpha1.Info{Started: new(time.Time)}}
	p := NewPage(New(Config{Clock: clock.RealClock{}}), func() bool { return true })
	r := httptest.NewRequest(http.MethodGet, "/?sort=-rate", http.NoBody)
	for name, changed := range map[string]bool{"unchanged": false, "changed": true} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if changed {
					p.index = nil
				}
				d := &document{Head: p.head(s)}
				if err := p.overview(r, s, d); err != nil {
					b.Fatal(err)
				}
				if len(p.html(d)) == 0 {
					b.Fatal("empty")
				}
			}
		})
	}
}
