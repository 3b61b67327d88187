package externalips

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/klog/v2/textlogger"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// harness is a Watcher with a cluster.
type harness struct {
	*Watcher
	options         *plan.Options
	services        cluster.Map[cluster.ServiceName, *cluster.Service]
	events          []proxy.Event
	served, ignored int
	log             bytes.Buffer
	plan            *plan.Plan
}

func newHarness(serve bool) *harness {
	h := &harness{options: &plan.Options{ServeExternalIPs: serve}}
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&h.log)))
	h.Watcher = New(Config{Recorder: h, Logger: logger, Counted: func(served, ignored int) { h.served, h.ignored = served, ignored }})
	return h
}

func (h *harness) Event(e proxy.Event) { h.events = append(h.events, e) }

// set adds or replaces a Service, and syncs.
func (h *harness) set(name, uid string, edit func(*cluster.Service), externalIPs ...string) {
	s := &cluster.Service{
		Name: cluster.ServiceName{Namespace: "default", Name: name}, UID: uid, Created: time.Unix(1, 0),
		ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.10")},
		Ports:      []cluster.ServicePort{{Protocol: cluster.TCP, Port: 80}},
	}
	for _, addr := range externalIPs {
		s.ExternalIPs = append(s.ExternalIPs, netip.MustParseAddr(addr))
	}
	if edit != nil {
		edit(s)
	}
	h.services = h.services.Set(s.Name, s)
	h.sync()
}

func (h *harness) sync() {
	snapshot := &cluster.Snapshot{Services: h.services, Node: &cluster.Node{}}
	h.plan = plan.Compute(snapshot, h.options, h.plan)
	h.Synced(&proxy.Sync{After: snapshot, Plan: h.plan})
}

// take returns the Events since the last call.
func (h *harness) take() (about []string) {
	for _, e := range h.events {
		about = append(about, fmt.Sprintf("%s/%s %s %s: %s", e.Namespace, e.Name, e.UID, e.Reason, e.Once))
	}
	h.events = nil
	return about
}

// TestEventOncePerChange checks that only a change of the field, or a new Service of the same name, causes an Event.
func TestEventOncePerChange(t *testing.T) {
	h := newHarness(false)
	port := func(s *cluster.Service) { s.Ports[0].Port = 81 }
	for _, step := range []struct {
		what    string
		do      func()
		want    []string
		ignored int
	}{
		{"a Service without", func() { h.set("web", "1", nil) }, nil, 0},
		{"gains one", func() { h.set("web", "1", nil, "192.0.2.1") }, []string{"default/web 1 ExternalIPsIgnored: 192.0.2.1"}, 1},
		{"nothing happens", h.sync, nil, 1},
		{"another field", func() { h.set("web", "1", port, "192.0.2.1") }, nil, 1},
		{"gains another", func() { h.set("web", "1", port, "192.0.2.1", "2001:db8::1") }, []string{"default/web 1 ExternalIPsIgnored: 192.0.2.1 2001:db8::1"}, 1},
		{"in another order", func() { h.set("web", "1", port, "2001:db8::1", "192.0.2.1") }, nil, 1},
		{"a second Service", func() { h.set("api", "2", nil, "192.0.2.1") }, []string{"default/api 2 ExternalIPsIgnored: 192.0.2.1"}, 2},
		{"recreated", func() { h.set("api", "3", nil, "192.0.2.1") }, []string{"default/api 3 ExternalIPsIgnored: 192.0.2.1"}, 2},
		{"loses all", func() { h.set("web", "1", port) }, nil, 1},
		{"is deleted", func() {
			h.services = h.services.Delete(cluster.ServiceName{Namespace: "default", Name: "api"})
			h.sync()
		}, nil, 0},
	} {
		step.do()
		if diff := cmp.Diff(step.want, h.take()); diff != "" || h.ignored != step.ignored || h.served != 0 {
			t.Errorf("%s: %d served, %d ignored, want %d (-want +got):\n%s", step.what, h.served, h.ignored, step.ignored, diff)
		}
	}
}

// TestSameEventAfterRestart checks that a new process publishes the same Event, so that the API server refuses it.
func TestSameEventAfterRestart(t *testing.T) {
	first, second := newHarness(false), newHarness(false)
	first.set("web", "1", nil, "192.0.2.1", "192.0.2.2")
	second.set("web", "1", nil, "192.0.2.2", "192.0.2.1")
	if diff := cmp.Diff(first.events, second.events); diff != "" || len(first.events) != 1 || first.events[0].Once == "" {
		t.Errorf("events of the second process (-first +second):\n%s", diff)
	}
	if e := first.events[0]; !e.Warning || e.Kind != "Service" || !strings.Contains(e.Message, "192.0.2.1 192.0.2.2") || !strings.Contains(e.Message, "LoadBalancer") {
		t.Errorf("the event is %+v", e)
	}
}

// TestServed checks that with the gate on there is no Event, but a count and a warning in the log.
func TestServed(t *testing.T) {
	h := newHarness(true)
	h.set("web", "1", nil, "192.0.2.1")
	h.set("api", "2", nil, "192.0.2.2")
	if len(h.events) > 0 || h.served != 2 || h.ignored != 0 {
		t.Errorf("%d served, %d ignored, events %v", h.served, h.ignored, h.events)
	}
	if log := h.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, "deprecated") || !strings.Contains(log, "services=1") {
		t.Errorf("the log is\n%s", log)
	}
}

// TestStart checks that only the first sync logs the count.
func TestStart(t *testing.T) {
	h := newHarness(false)
	for i := range 3 {
		name := cluster.ServiceName{Namespace: "default", Name: fmt.Sprint("s", i)}
		h.services = h.services.Set(name, &cluster.Service{Name: name, ExternalIPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}})
	}
	h.sync()
	h.set("late", "9", nil, "192.0.2.9")
	if log := h.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, "not served") || !strings.Contains(log, "services=3") {
		t.Errorf("the log is\n%s", log)
	}
	if h.ignored != 4 {
		t.Errorf("%d Services are counted, want 4", h.ignored)
	}
}
