package announce

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/test/observers"
)

// harness is a cluster that a Watcher follows, with the Watcher's counts.
type harness struct {
	observers.Cluster
	served, ignored int
}

func newHarness(serve bool) *harness {
	h := &harness{}
	h.Options.ServeExternalIPs = serve
	h.Observer = NewReporter(ReporterConfig{Recorder: h, Logger: h.Logger(), ExternalIPs: func(served, ignored int) { h.served, h.ignored = served, ignored }})
	return h
}

// set adds or replaces a Service, and syncs.
func (h *harness) set(name, uid string, edit func(*cluster.Service), externalIPs ...string) {
	s := &cluster.Service{
		Name: cluster.ServiceName{Namespace: "default", Name: name}, UID: uid, Created: 1,
		ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 0, uid[0]})},
		Ports:      []cluster.ServicePort{{Protocol: cluster.TCP, Port: 80}},
	}
	s.External = &cluster.External{}
	for _, addr := range externalIPs {
		s.External.ExternalIPs = append(s.External.ExternalIPs, netip.MustParseAddr(addr))
	}
	if edit != nil {
		edit(s)
	}
	h.Set(s)
}

// take returns the Events since the last call.
func (h *harness) take() (about []string) {
	for _, e := range h.Events {
		about = append(about, fmt.Sprintf("%s/%s %s %s: %s", e.Namespace, e.Name, e.UID, e.Reason, e.Once))
	}
	h.Events = nil
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
		{"gains one", func() { h.set("web", "1", nil, "192.0.2.1") }, []string{"default/web 1 ExternalIPsNotServed: 192.0.2.1"}, 1},
		{"nothing happens", h.Sync, nil, 1},
		{"another field", func() { h.set("web", "1", port, "192.0.2.1") }, nil, 1},
		{"gains another", func() { h.set("web", "1", port, "192.0.2.1", "2001:db8::1") }, []string{"default/web 1 ExternalIPsNotServed: 192.0.2.1 2001:db8::1"}, 1},
		{"in another order", func() { h.set("web", "1", port, "2001:db8::1", "192.0.2.1") }, nil, 1},
		{"a second Service", func() { h.set("api", "2", nil, "192.0.2.1") }, []string{"default/api 2 ExternalIPsNotServed: 192.0.2.1"}, 2},
		{"recreated", func() { h.set("api", "3", nil, "192.0.2.1") }, []string{"default/api 3 ExternalIPsNotServed: 192.0.2.1"}, 2},
		{"loses all", func() { h.set("web", "1", port) }, nil, 1},
		{"is deleted", func() { h.Delete(cluster.ServiceName{Namespace: "default", Name: "api"}) }, nil, 0},
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
	if diff := cmp.Diff(first.Events, second.Events); diff != "" || len(first.Events) != 1 || first.Events[0].Once == "" {
		t.Errorf("events of the second process (-first +second):\n%s", diff)
	}
	if e := first.Events[0]; !e.Warning || e.Kind != "Service" || !strings.Contains(e.Message, "192.0.2.1 192.0.2.2") || !strings.Contains(e.Message, "LoadBalancer") {
		t.Errorf("the event is %+v", e)
	}
}

// TestServed checks that with the gate on there is no Event, but a count and a warning in the log.
func TestServed(t *testing.T) {
	h := newHarness(true)
	h.set("web", "1", nil, "192.0.2.1")
	h.set("api", "2", nil, "192.0.2.2")
	if len(h.Events) > 0 || h.served != 2 || h.ignored != 0 {
		t.Errorf("%d served, %d ignored, events %v", h.served, h.ignored, h.Events)
	}
	if log := h.Log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, "deprecated") || !strings.Contains(log, "services=1") {
		t.Errorf("the log is\n%s", log)
	}
}

// TestStart checks that only the first sync logs the count.
func TestStart(t *testing.T) {
	h := newHarness(false)
	for i := range 3 {
		name := cluster.ServiceName{Namespace: "default", Name: fmt.Sprint("s", i)}
		h.Services = h.Services.Set(name, &cluster.Service{Name: name, External: &cluster.External{ExternalIPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}})
	}
	h.Sync()
	h.set("late", "9", nil, "192.0.2.9")
	if log := h.Log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, "not served") || !strings.Contains(log, "services=3") {
		t.Errorf("the log is\n%s", log)
	}
	if h.ignored != 4 {
		t.Errorf("%d Services are counted, want 4", h.ignored)
	}
}
