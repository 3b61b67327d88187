package cases

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/component-base/metrics"
	testclock "k8s.io/utils/clock/testing"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/announce"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	proxymetrics "github.com/seed-11a05479/kube-proxy/pkg/proxy/metrics"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/view"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// court is where a user sees the problems of Services.
type court struct {
	t        *testing.T
	shown    *view.Observer
	measured *proxymetrics.Metrics
	reporter *announce.Reporter
	registry metrics.KubeRegistry
	list     http.Handler
	page     http.Handler
	seen     map[string]bool
	history  proxy.History
	// events are those of the last sync.
	events []proxy.Event
	// synced is set once anything is in force: syncs may fail.
	synced bool
}

func newCourt(t *testing.T) *court {
	families := []cluster.Family{cluster.IPv4, cluster.IPv6}
	c := &court{t: t, registry: metrics.NewKubeRegistry(), seen: map[string]bool{}}
	c.shown = view.New(view.Config{Mode: "nftables", Families: families, Clock: testclock.NewFakePassiveClock(time.Unix(1_000_000, 0))})
	c.measured = proxymetrics.New(proxymetrics.Config{Families: families, Snapshot: func() *cluster.Snapshot { return &cluster.Snapshot{} }, Observed: c.shown.Observed}, c.registry.MustRegister)
	c.reporter = announce.NewReporter(announce.ReporterConfig{Recorder: c, ExternalIPs: func(int, int) {}, Logger: logr.Discard()})
	c.list = view.NewHandler(c.shown)
	c.page = view.NewPage(c.shown, func() bool { return true })
	return c
}

// Event implements [proxy.Recorder].
func (c *court) Event(e proxy.Event) { c.events = append(c.events, e) }

// TestOneJudge checks for all cases and random clusters, with and without what only a running proxy observes, and while syncs fail in one or
// both families, that "service list" and "describe", the metric and the status page have the same problems, and that Events and "explain"
// name only and all of them that they are about.
func TestOneJudge(t *testing.T) {
	c := newCourt(t)
	random := rand.New(rand.NewPCG(1, 2))
	for _, of := range load(t) {
		c.hear(of.Name, of.Plan(), random)
	}
	for seed := range uint64(10) {
		of := clusters.NewRandom(seed, 12)
		for range 10 {
			c.hear("random", of.Step(), random)
		}
	}
	for _, reason := range plan.ProblemReasons() {
		if !c.seen[reason] && reason != plan.ProblemTooLarge && reason != plan.ProblemNoSuchPort {
			t.Errorf("no case leads to %s", reason)
		}
	}
}

// hear compares the reasons that are reported for a plan, in which some problems are observed.
func (c *court) hear(name string, p *plan.Plan, random *rand.Rand) {
	c.t.Helper()
	at := time.Unix(1_000_000, 0)
	s := &proxy.Sync{After: p.Snapshot(), Plan: p, Started: at, Finished: at, Results: []backend.Result{{Family: cluster.IPv4}, {Family: cluster.IPv6}}}
	ports := plan.Observed{}
	for name, service := range p.Services.All() {
		for _, route := range service.Routes {
			if random.IntN(20) == 0 {
				s.Results[0].Refused = append(s.Results[0].Refused, backend.Refusal{Family: cluster.IPv4, Service: name, Port: route.Of().String(), Cause: errors.New("no")})
			}
		}
		if random.IntN(20) == 0 {
			s.Delayed = append(s.Delayed, proxy.Delay{Service: name})
		}
		if random.IntN(20) == 0 {
			ports[name] = []plan.Problem{{Reason: plan.ProblemHealthCheck}}
		}
	}
	failing := false
	for i := range s.Results {
		if c.synced && random.IntN(3) == 0 {
			s.Results[i].Err, failing = errors.New("busy"), true
		}
	}
	c.synced = true
	c.shown.HealthChecks(nil)
	c.history.Add(s)
	c.shown.Synced(s)
	c.measured.Synced(s)
	c.events = nil
	c.reporter.Synced(s)
	c.get(c.page, "/") // fills its cache
	c.shown.HealthChecks(ports)

	services := c.services()
	listed := map[string]int{}
	for _, service := range services {
		for reason := range reasons(service) {
			listed[reason]++
		}
		c.describe(name, service)
		if !failing { // otherwise it, or the list, is about an earlier plan; Events are about the last one
			c.explain(name, p, service)
		}
	}
	for _, event := range c.events {
		if of := services[cluster.ServiceName{Namespace: event.Namespace, Name: event.Name}]; !failing && (of == nil || !reasons(of)[event.Reason]) {
			c.t.Fatalf("%s: the Event %+v is about no problem of %+v", name, event, of)
		}
	}
	if diff := cmp.Diff(listed, c.counted()); diff != "" {
		c.t.Fatalf("%s: Services by reason (-list +metric):\n%s", name, diff)
	}
	html := c.get(c.page, "/")
	for _, reason := range plan.ProblemReasons() {
		c.seen[reason] = c.seen[reason] || listed[reason] > 0
		if told := strings.Contains(html, ">"+reason+"<"); told != (listed[reason] > 0) {
			c.t.Fatalf("%s: %d Services have %s; it is on the page: %v", name, listed[reason], reason, told)
		}
	}
}

// services returns the list.
func (c *court) services() map[cluster.ServiceName]*v1alpha1.Service {
	var list v1alpha1.ServiceList
	c.read("/services", &list)
	all := map[cluster.ServiceName]*v1alpha1.Service{}
	for i, service := range list.Items {
		all[cluster.ServiceName{Namespace: service.Namespace, Name: service.Name}] = &list.Items[i]
	}
	return all
}

// reasons returns those of a Service's problems.
func reasons(of *v1alpha1.Service) map[string]bool {
	all := map[string]bool{}
	for _, problem := range of.Problems {
		all[problem.Reason] = true
	}
	return all
}

// describe compares the description of a Service with the list.
func (c *court) describe(name string, listed *v1alpha1.Service) {
	c.t.Helper()
	var described v1alpha1.Service
	c.read("/services/"+listed.Namespace+"/"+listed.Name, &described)
	if diff := cmp.Diff(listed.Problems, described.Problems); diff != "" {
		c.t.Fatalf("%s: problems of %s (-list +describe):\n%s", name, listed.Name, diff)
	}
}

// explain asks about a packet to a port of a Service: what is wrong with the port is named.
func (c *court) explain(name string, p *plan.Plan, listed *v1alpha1.Service) {
	c.t.Helper()
	decided, _ := p.Services.Get(cluster.ServiceName{Namespace: listed.Namespace, Name: listed.Name})
	for _, problem := range listed.Problems {
		for _, route := range decided.Routes {
			served, _ := p.Frontends.Get(route.Frontend)
			if problem.Address != "" || served != route || route.Frontend.IsNodePort() || route.Of().String() != problem.Port || problem.Family != "" && problem.Family != route.Frontend.Family().String() {
				continue
			}
			var explained v1alpha1.Explanation
			c.read("/explain?from=external&to="+route.Frontend.String(), &explained)
			if want := (v1alpha1.Step{Subject: "problem", Text: problem.Reason + ": " + problem.Message}); !slices.Contains(explained.Steps, want) {
				c.t.Fatalf("%s: a packet to %s: without %+v: %+v", name, route.Frontend, want, explained.Steps)
			}
			break
		}
	}
}

// read reads an object of the API.
func (c *court) read(path string, into any) {
	c.t.Helper()
	if err := json.Unmarshal([]byte(c.get(c.list, v1alpha1.Path+path)), into); err != nil {
		c.t.Fatal(err)
	}
}

// counted returns the values of the metric.
func (c *court) counted() map[string]int {
	families, err := c.registry.Gather()
	if err != nil {
		c.t.Fatal(err)
	}
	counts := map[string]int{}
	for _, family := range families {
		if family.GetName() != "serviceproxy_services_with_problems" {
			continue
		}
		for _, m := range family.GetMetric() {
			if n := int(m.GetGauge().GetValue()); n != 0 {
				counts[m.GetLabel()[0].GetValue()] = n
			}
		}
	}
	return counts
}

func (c *court) get(from http.Handler, path string) string {
	r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
	r.RemoteAddr, r.Host = "127.0.0.1:40000", "127.0.0.1:10249"
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 10249}))
	w := httptest.NewRecorder()
	from.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		c.t.Fatalf("%s: %d %s", path, w.Code, w.Body)
	}
	return w.Body.String()
}
