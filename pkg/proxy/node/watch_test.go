package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// story is a Watch of a node that changes.
type story struct {
	*Watch
	mu       sync.Mutex // guards node, unlisted and metric: time in a synctest bubble orders goroutines, but not their memory
	node     *cluster.Node
	unlisted string
	hint     string // of the API server's source
	metric   map[string]bool
	logger   klog.Logger
	history  proxy.History
}

// begin makes a Watch that serves IPv4, and more families if they are given.
func begin(options plan.Options, more ...cluster.Family) *story {
	s := &story{metric: map[string]bool{}, node: &cluster.Node{Name: "n", Interfaces: addrs("192.0.2.1", "2001:db8::1")}}
	s.logger = ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true)))
	s.Watch = NewWatch(Config{
		Name: "n", Families: append([]cluster.Family{cluster.IPv4}, more...), Plan: &options, NodePortsByDefault: true, Logger: s.logger,
		Snapshot: func() *cluster.Snapshot {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.unlisted != "" {
				panic("a snapshot was taken before everything was listed")
			}
			return &cluster.Snapshot{Node: s.node}
		},
		Unlisted: func() (names, hint string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.unlisted, s.hint
		},
		Waiting: func(reason string, waiting bool) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.metric[reason] = waiting
		},
	})
	return s
}

// sync shows the Watch a sync for the node as it is, with a Service that has a node port in these families.
func (s *story) sync(nodePorts ...string) { s.syncService(30080, nodePorts...) }

// syncService is a sync of a Service with these cluster IPs. The node port 0 means that it has none.
func (s *story) syncService(nodePort int32, clusterIPs ...string) {
	b := cluster.NewBuilder("n")
	_ = b.Update(func(u *cluster.Update) { // a valid Service
		u.SetService(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}, Spec: corev1.ServiceSpec{
			ClusterIPs: clusterIPs, ClusterIP: strings.Join(clusterIPs[:min(1, len(clusterIPs))], ""),
			Ports: []corev1.ServicePort{{Port: 80, NodePort: nodePort}}, Type: corev1.ServiceTypeNodePort}})
	})
	snapshot := *b.Snapshot()
	snapshot.Node = s.node
	s.Synced(s.history.Add(&proxy.Sync{After: &snapshot, Plan: plan.Compute(&snapshot, s.config.Plan, nil)}))
}

// logged counts the lines of the log that hold some words.
func (s *story) logged(words string) int {
	return strings.Count(s.logger.GetSink().(ktesting.Underlier).GetBuffer().String(), words)
}

// TestHintOfAPIServer: what to do fits why the API server does not list.
func TestHintOfAPIServer(t *testing.T) {
	const forbidden = "bind the ClusterRole system:node-proxier"
	for hint, want := range map[string]string{"": "check the address", forbidden: forbidden} {
		s := begin(plan.Options{})
		s.unlisted, s.hint = "the API server to list services", hint
		if got := s.Waiting(); len(got) != 1 || !strings.Contains(got[0].Hint, want) {
			t.Errorf("%q: got %+v, want the hint %q", hint, got, want)
		}
	}
}

// TestWaiting lets a node come to be as it does in a cloud, step by step: what is waited for is returned, measured, and logged
// once for each time.
func TestWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begin(plan.Options{NodeCIDR: true})
		s.unlisted = "the API server to list services (unreachable)"
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		for _, step := range []struct {
			change func()
			want   []Reason
			says   string
		}{
			{func() {}, []Reason{APIServer}, "the API server to list services (unreachable)"},
			{func() { s.unlisted = "" }, []Reason{NodeObject}, "--hostname-override"},
			{func() { s.node = &cluster.Node{Name: "n", Exists: true} }, []Reason{Addresses, PodCIDRs}, "nodeIPOverride"},
			{func() { s.node = &cluster.Node{Name: "n", Exists: true, Addresses: addrs("192.0.2.1")} }, []Reason{PodCIDRs}, "spec.podCIDRs"},
			{func() {
				s.node = &cluster.Node{Name: "n", Exists: true, Addresses: addrs("192.0.2.1"), PodCIDRs: prefixes("10.244.1.0/24")}
			}, nil, `No longer waiting`},
			{func() { gone := *s.node; gone.Exists = false; s.node = &gone }, []Reason{NodeObject}, "the Node object"},
		} {
			s.mu.Lock()
			step.change()
			s.mu.Unlock()
			time.Sleep(3 * period)
			synctest.Wait()
			var got []Reason
			for _, wait := range s.Waiting() {
				got = append(got, wait.Reason)
			}
			s.mu.Lock()
			metric := maps.Clone(s.metric)
			s.mu.Unlock()
			measured := slices.Sorted(maps.Keys(metric))
			if len(measured) != len(Reasons()) {
				t.Errorf("the metric has %v", measured)
			}
			for reason, waiting := range metric {
				if waiting != slices.Contains(step.want, Reason(reason)) {
					t.Errorf("the metric of %s is %t, want %v", reason, waiting, step.want)
				}
			}
			if !slices.Equal(got, step.want) || s.logged(step.says) == 0 {
				t.Errorf("waits for %v, want %v and the words %q in the log", got, step.want, step.says)
			}
		}
		if s.logged("spec.podCIDRs") != 1 || s.logged("--hostname-override") != 2 {
			t.Errorf("logged %d and %d times, want once and twice", s.logged("spec.podCIDRs"), s.logged("--hostname-override"))
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestRest checks that a Watch that waits for nothing does nothing until the Node changes.
func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begin(plan.Options{})
		s.node = &cluster.Node{Name: "n", Exists: true, Addresses: addrs("192.0.2.1")}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		s.sync()
		time.Sleep(2 * period)
		synctest.Wait()
		measured := func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			n := len(s.metric)
			clear(s.metric)
			return n > 0
		}
		if !measured() {
			t.Error("not measured at the start")
		}
		time.Sleep(time.Hour)
		s.sync()
		synctest.Wait()
		if measured() {
			t.Error("measured although nothing changed")
		}
		s.mu.Lock()
		s.node = &cluster.Node{Name: "n", Addresses: addrs("192.0.2.1")}
		s.mu.Unlock()
		s.sync()
		synctest.Wait()
		if !measured() {
			t.Error("not measured after the Node was deleted")
		}
		time.Sleep(2 * period)
		if n := s.logged("the Node object"); n != 1 {
			t.Errorf("that is logged %d times, want once", n)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestWarnings warns once of what a user may not expect, and of nothing else.
func TestWarnings(t *testing.T) {
	primary := plan.NodePortAddresses{Primary: true}
	cidrs := func(texts ...string) plan.LocalTraffic { return plan.LocalTraffic{CIDRs: prefixes(texts...)} }
	dual := cluster.Node{Addresses: addrs("192.0.2.1", "2001:db8::1")}
	for _, test := range []struct {
		name    string
		options plan.Options
		node    cluster.Node
		says    string // empty is nothing
	}{
		{"nothing to warn of", plan.Options{NodePorts: primary, LocalTraffic: cidrs("10.244.0.0/16", "fd00::/48")}, dual, ""},
		{"one family on a single-stack node", plan.Options{NodePorts: primary, LocalTraffic: cidrs("10.244.0.0/16")},
			cluster.Node{Addresses: addrs("192.0.2.1", "2001:db8::1")[:1]}, `because the Node has no address of the family family="IPv6"`},
		{"the node is not known yet", plan.Options{NodePorts: primary, LocalTraffic: cidrs("10.244.0.0/16")}, cluster.Node{}, ""},
		{"no cluster CIDR", plan.Options{NodePorts: primary}, dual, "there is no cluster CIDR"},
		{"an interface in its place", plan.Options{NodePorts: primary, LocalTraffic: plan.LocalTraffic{Interface: "cbr0"}}, dual, ""},
		{"a cluster CIDR of one family", plan.Options{NodePorts: primary, LocalTraffic: cidrs("10.244.0.0/16")}, dual, "an IP family without a cluster CIDR"},
		{"node ports everywhere", plan.Options{LocalTraffic: cidrs("10.244.0.0/16", "fd00::/48")}, dual, "to primary"},
		{"pod CIDRs are not there yet", plan.Options{NodePorts: primary, NodeCIDR: true}, dual, ""},
		{"pod CIDRs of one family", plan.Options{NodePorts: primary, NodeCIDR: true},
			cluster.Node{Addresses: dual.Addresses, PodCIDRs: prefixes("10.244.1.0/24")}, "an IP family without a pod CIDR"},
		{"the Node's address is elsewhere", plan.Options{NodePorts: primary, LocalTraffic: plan.LocalTraffic{Interface: "cbr0"}},
			cluster.Node{Addresses: dual.Addresses, Interfaces: addrs("192.0.2.1", "2001:db8::2")}, `this machine does not have it family="IPv6"`},
		{"no interfaces", plan.Options{NodePorts: primary, LocalTraffic: plan.LocalTraffic{Interface: "cbr0"}},
			cluster.Node{Addresses: dual.Addresses, Interfaces: addrs("127.0.0.1", "::1", "fe80::1")}, "no addresses but loopback and link-local ones"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := begin(test.options, cluster.IPv6)
			if test.node.Interfaces == nil {
				test.node.Interfaces = s.node.Interfaces
			}
			test.node.Name, test.node.Exists = "n", true
			s.node = &test.node
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if err := s.Run(ended); err != nil {
				t.Fatal(err)
			}
			s.sync("10.96.0.1", "fd00:96::1")
			s.sync("10.96.0.1", "fd00:96::1")
			lines, log := 1, s.logger.GetSink().(ktesting.Underlier).GetBuffer().String()
			if test.says != "" {
				lines++ // after that of the node's addresses
			}
			if got := strings.Count(log, "\n"); got != lines || !strings.Contains(log, test.says) {
				t.Errorf("want %d lines with %q:\n%s", lines, test.says, log)
			}
		})
	}
}

// TestNodePortsOfOneFamily does not warn of a family without node ports: most machines have IPv6, and no use for it.
func TestNodePortsOfOneFamily(t *testing.T) {
	s := begin(plan.Options{NodePorts: plan.NodePortAddresses{Primary: true}}, cluster.IPv6)
	s.node = &cluster.Node{Name: "n", Exists: true, Addresses: addrs("192.0.2.1"), Interfaces: s.node.Interfaces}
	s.syncService(0, "10.96.0.1", "fd00:96::1")
	s.sync("10.96.0.1")
	if n := s.logged("on all addresses"); n != 0 {
		t.Errorf("warned of node ports of a family that has none")
	}
	s.sync("10.96.0.1", "fd00:96::1")
	if n := s.logged("on all addresses"); n != 1 {
		t.Errorf("warned %d times of IPv6 node ports on all addresses", n)
	}
}

// TestZone warns once of zone hints that a Node without a zone cannot use, also if its zone is taken away later.
func TestZone(t *testing.T) {
	snapshot := func(hints *discoveryv1.EndpointHints, zone string) *cluster.Snapshot {
		b := cluster.NewBuilder("n")
		_ = b.Update(func(u *cluster.Update) { // valid objects
			u.SetService(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}, Spec: corev1.ServiceSpec{
				ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1"}, Ports: []corev1.ServicePort{{Port: 80}}}})
			u.SetEndpointSlice(&discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4,
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a-1", Labels: map[string]string{discoveryv1.LabelServiceName: "a"}},
				Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"10.244.0.1"}, Hints: hints}}})
		})
		s := *b.Snapshot()
		s.Node = &cluster.Node{Name: "n", Exists: true, Zone: zone, Addresses: addrs("192.0.2.1"), Interfaces: addrs("192.0.2.1")}
		return &s
	}
	east := &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "east"}}}
	for name, test := range map[string]struct {
		zones []string // of the Node, in turn
		hints *discoveryv1.EndpointHints
		want  int
	}{
		"no hints":       {[]string{"", ""}, nil, 0},
		"a zone":         {[]string{"east", "east"}, east, 0},
		"no zone":        {[]string{"", ""}, east, 1},
		"zone taken off": {[]string{"east", "east", ""}, east, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := begin(plan.Options{})
			for _, zone := range test.zones {
				after := snapshot(test.hints, zone)
				s.Synced(s.history.Add(&proxy.Sync{After: after, Plan: plan.Compute(after, s.config.Plan, nil)}))
			}
			if n := s.logged("zone hints"); n != test.want {
				t.Errorf("warned %d times, want %d", n, test.want)
			}
		})
	}
}

// TestPrimary ends a proxy whose primary family is not served, unless it has ever been another one.
func TestPrimary(t *testing.T) {
	for _, test := range []struct {
		steps []string // primary addresses
		fails bool
	}{
		{[]string{"192.0.2.1"}, false},
		{[]string{"", "2001:db8::1", "2001:db8::1"}, true},
		{[]string{"", "192.0.2.1", "2001:db8::1", "2001:db8::1"}, false},
	} {
		s := begin(plan.Options{})
		for _, addr := range test.steps {
			s.node = &cluster.Node{Name: "n", Exists: true, Addresses: addrs(strings.Fields(addr)...), Interfaces: s.node.Interfaces}
			s.sync()
		}
		ended, cancel := context.WithTimeout(t.Context(), time.Second)
		if !test.fails {
			cancel()
		}
		err := s.Run(ended)
		cancel()
		if test.fails != (err != nil) || err != nil && !strings.Contains(err.Error(), "the primary address 2001:db8::1 of the Node \"n\" is of family IPv6, which is not served here") {
			t.Errorf("%v: %v", test.steps, err)
		}
		if changed := fmt.Sprint(test.steps) == "[ 192.0.2.1 2001:db8::1 2001:db8::1]"; changed != (s.logged("now of a family that is not served") == 1) {
			t.Errorf("%v: the change is not logged, or not once", test.steps)
		}
	}
}
