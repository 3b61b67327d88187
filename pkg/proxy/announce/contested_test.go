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

// harness is a cluster that a Watcher follows.
type contest struct{ observers.Cluster }

func newContest() *contest {
	h := &contest{}
	h.Observer = NewReporter(ReporterConfig{Recorder: h, ExternalIPs: func(int, int) {}, Logger: h.Logger()})
	h.Sync() // the first sync may log more
	return h
}

// set adds or replaces a Service with these load balancer IPs, and syncs. A Service with a longer name is older.
func (h *contest) set(name, uid string, endpoints int, addrs ...string) {
	s := &cluster.Service{
		Name: cluster.ServiceName{Namespace: "ns", Name: name}, UID: uid, Created: 1000 - int64(len(name)),
		ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 0, byte(len(name))})},
		Ports:      []cluster.ServicePort{{Name: "http", Protocol: cluster.TCP, Port: 80}},
	}
	s.External = &cluster.External{}
	for _, addr := range addrs {
		s.External.LoadBalancerIPs = append(s.External.LoadBalancerIPs, netip.MustParseAddr(addr))
	}
	slice := &cluster.EndpointSlice{Name: "a", Ports: []cluster.EndpointPort{{Name: "http", Protocol: cluster.TCP, Port: 8080}}}
	for i := range endpoints {
		slice.Endpoints = append(slice.Endpoints, cluster.Endpoint{Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + i)}), Conditions: cluster.Ready})
	}
	s.Slices = []*cluster.EndpointSlice{slice}
	h.Set(s)
}

func (h *contest) remove(name string) { h.Delete(cluster.ServiceName{Namespace: "ns", Name: name}) }

// take returns the Events since the last call, and checks that the log has a line for each.
func (h *contest) take(t *testing.T) (events []string) {
	t.Helper()
	for _, e := range h.Events {
		events = append(events, fmt.Sprintf("%s/%s %s: %s", e.Namespace, e.Name, e.UID, e.Once))
		if !strings.Contains(h.Log.String(), e.Once) || !strings.Contains(e.Message, e.Once) {
			t.Errorf("the event's message is %q and the log %q, want both to contain %q", e.Message, h.Log.String(), e.Once)
		}
	}
	if lines := strings.Count(h.Log.String(), "\n"); lines != len(h.Events) {
		t.Errorf("%d lines in the log, want one for each of %d events", lines, len(h.Events))
	}
	h.Events = nil
	h.Log.Reset()
	return events
}

// TestOncePerContest checks that the other Service gets an Event only when a contest begins or another Service is served.
func TestOncePerContest(t *testing.T) {
	const one, two = "192.0.2.1", "192.0.2.2"
	lost := func(addr, holder string) string {
		return "load balancer IP " + addr + ":80/TCP is served for ns/" + holder + ":http, which is older"
	}
	h := newContest()
	for _, step := range []struct {
		what string
		do   func()
		want []string
	}{
		{"alone", func() { h.set("a", "1", 1, one) }, nil},
		{"an older one is added", func() { h.set("older", "2", 1, one) }, []string{"ns/a 1: " + lost(one, "older")}},
		{"nothing happens", h.Sync, nil},
		{"endpoints are added", func() { h.set("a", "1", 2, one); h.set("older", "2", 3, one) }, nil},
		{"the unserved one adds another address", func() { h.set("a", "1", 2, one, two) }, nil},
		{"the served one adds the same address", func() { h.set("older", "2", 3, one, two) },
			[]string{"ns/a 1: " + lost(one, "older") + "; " + lost(two, "older")}},
		{"the unserved one is recreated", func() { h.set("a", "3", 2, one, two) },
			[]string{"ns/a 3: " + lost(one, "older") + "; " + lost(two, "older")}},
		{"the oldest is added", func() { h.set("the oldest", "4", 1, one) },
			[]string{"ns/a 3: " + lost(one, "the oldest") + "; " + lost(two, "older"), "ns/older 2: " + lost(one, "the oldest")}},
		{"it is deleted: the next one is served", func() { h.remove("the oldest") }, []string{"ns/a 3: " + lost(one, "older") + "; " + lost(two, "older")}},
		{"the served one is deleted", func() { h.remove("older") }, nil},
		{"and is created again", func() { h.set("older", "5", 1, two) }, []string{"ns/a 3: " + lost(two, "older")}},
	} {
		step.do()
		if diff := cmp.Diff(step.want, h.take(t)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.what, diff)
		}
	}
}

// TestReason checks that the Event contains the rule that decided, and is repeated when another rule decides.
func TestReason(t *testing.T) {
	h := newContest()
	h.Options.ServeExternalIPs = true
	add := func(name string, change func(*cluster.Service)) {
		s := &cluster.Service{
			Name: cluster.ServiceName{Namespace: "ns", Name: name}, UID: name, Created: 1000,
			ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 0, name[0]})},
			Ports:      []cluster.ServicePort{{Protocol: cluster.TCP, Port: 80}},
		}
		change(s)
		h.Set(s)
	}
	shared := []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	external := &cluster.External{ExternalIPs: shared}
	add("a", func(s *cluster.Service) { s.External, s.Created = external, 1 })
	for _, step := range []struct {
		name   string
		change func(*cluster.Service)
		want   string
	}{
		{"b", func(s *cluster.Service) { s.External = &cluster.External{LoadBalancerIPs: shared} }, "ns/a a: external IP 192.0.2.1:80/TCP is served for ns/b, which has it as its load balancer IP"},
		{"b", func(s *cluster.Service) { s.ClusterIPs = shared }, "ns/a a: external IP 192.0.2.1:80/TCP is served for ns/b, which has it as its cluster IP"},
		{"b", func(s *cluster.Service) { s.External = external }, "ns/b b: external IP 192.0.2.1:80/TCP is served for ns/a, which is older"},
		{"a", func(s *cluster.Service) { s.External, s.UID = external, "a2" }, ""},
		{"b", func(s *cluster.Service) { s.External, s.UID = external, "b2" }, "ns/b b2: external IP 192.0.2.1:80/TCP is served for ns/a, which is as old and whose name sorts first"},
	} {
		add(step.name, step.change)
		if got := strings.Join(h.take(t), " | "); got != step.want {
			t.Errorf("got %q, want %q", got, step.want)
		}
	}
}

// TestSameEventAfterRestart checks that a process that finds all contests at once publishes the same Event as one that saw
// them begin, so that the API server refuses the duplicate.
func TestSameContestAfterRestart(t *testing.T) {
	first := newContest()
	first.set("a", "1", 1, "192.0.2.1", "192.0.2.2")
	first.set("older", "2", 1, "192.0.2.1")
	first.set("older", "2", 1, "192.0.2.1", "192.0.2.2")
	second := newContest()
	second.Services = first.Services
	second.Sync()
	if diff := cmp.Diff(first.Events[1:], second.Events); diff != "" || len(second.Events) != 1 {
		t.Errorf("events of the second process (-first +second):\n%s", diff)
	}
	if e := second.Events[0]; !e.Warning || e.Kind != "Service" || e.UID != "1" || e.Reason == "" || e.Action == "" {
		t.Errorf("the event is %+v", e)
	}
}

// TestManyContests checks that the message is bounded, and that Once contains everything.
func TestManyContests(t *testing.T) {
	for many, more := range map[int]string{maxListed: "", 3 * maxListed: fmt.Sprintf("; and %d more", 2*maxListed)} {
		h := newContest()
		var addrs []string
		for i := range many {
			addrs = append(addrs, fmt.Sprintf("192.0.2.%d", i))
		}
		h.set("older", "1", 1, addrs...)
		h.set("a", "2", 1, addrs...)
		if len(h.Events) != 1 {
			t.Fatalf("%d addresses: got %+v", many, h.Events)
		}
		message, once := h.Events[0].Message, h.Events[0].Once
		if strings.Count(message, " is served for ") != maxListed || !strings.Contains(message, "which is older"+more+". Give one of them") ||
			strings.Count(once, " is served for ") != many {
			t.Errorf("%d addresses: the message is %q, and Once %q", many, message, once)
		}
	}
}
