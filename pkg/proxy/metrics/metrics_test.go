package metrics

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

var start = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

// fixture is a Metrics of both families with a cluster.
type fixture struct {
	t *testing.T
	*Metrics
	backend.Backend
	registry metrics.KubeRegistry
	services cluster.Map[cluster.ServiceName, *cluster.Service]
	options  *plan.Options
	history  proxy.History
	before   *plan.Plan
	// rejected holds the kernel's counters of IPv4; nil if they cannot be read.
	rejected map[cluster.Protocol]uint64
	// clients are those of IPv4; zero if they cannot be read.
	clients backend.Clients
	// kernel holds the kernel's counters of connections.
	kernel *kernelConnections
	// packets holds the packet counters of rules.
	packets
	// invalid are the manifests that are not in use.
	invalid []string
}

// packets holds the kernel's counters by family; missing ones cannot be read.
type packets struct{ dropped, accepted map[cluster.Family]uint64 }

func (p *packets) invalidDropped(family cluster.Family) (uint64, error) { return of(p.dropped, family) }

func (p *packets) localhostAccepted(family cluster.Family) (uint64, error) {
	return of(p.accepted, family)
}

func of(counters map[cluster.Family]uint64, family cluster.Family) (uint64, error) {
	if n, ok := counters[family]; ok {
		return n, nil
	}
	return 0, errors.New("cannot read the counters")
}

// counters are those of a backend with all names.
func (f *fixture) counters() backend.KernelCounters {
	return backend.KernelCounters{InvalidDropped: f.invalidDropped, LocalhostAccepted: f.localhostAccepted, LocalhostRejected: f.localhostRejected, Clients: f.remembered, Names: backend.MetricNames{
		SyncFailures:            "sync_proxy_rules_nftables_sync_failures_total",
		PartialSyncFailures:     "sync_proxy_rules_iptables_partial_restore_failures_total",
		CleanupFailures:         "sync_proxy_rules_nftables_cleanup_failures_total",
		TableRules:              "sync_proxy_rules_iptables_total",
		TableRulesWritten:       "sync_proxy_rules_iptables_last",
		InvalidDropped:          "iptables_ct_state_invalid_dropped_packets_total",
		LocalhostAccepted:       "iptables_localhost_nodeports_accepted_packets_total",
		LocalhostRejected:       "nftables_localhost_nodeport_rejected_packets_total",
		LocalhostListeners:      "nftables_localhost_nodeport_listeners",
		LocalhostListenFailures: "nftables_localhost_nodeport_listener_creation_failures_total",
	}}
}

func (f *fixture) localhostRejected(family cluster.Family) (map[cluster.Protocol]uint64, error) {
	if f.rejected == nil {
		return nil, errors.New("cannot read the counters")
	}
	if family == cluster.IPv6 {
		return nil, nil
	}
	return f.rejected, nil
}

func (f *fixture) remembered(family cluster.Family) (backend.Clients, error) {
	if family == cluster.IPv6 {
		return backend.Clients{}, nil
	}
	if f.clients == (backend.Clients{}) {
		return backend.Clients{}, errors.New("cannot read the clients")
	}
	return f.clients, nil
}

func newFixture(t *testing.T) *fixture { return newCounting(t, EndpointConnections) }

// newCounting returns a fixture with metrics of connections.
func newCounting(t *testing.T, level ConnectionLevel) *fixture {
	t.Helper()
	f := &fixture{t: t, registry: metrics.NewKubeRegistry(), options: &plan.Options{}, kernel: newKernelConnections()}
	f.Metrics = New(Config{
		Families: []cluster.Family{cluster.IPv4, cluster.IPv6}, Start: start, Snapshot: f.snapshot,
		Counters: f.counters(), LocalhostRejected: true, Connections: level, Counter: f, Limited: true,
		InvalidManifests: func() []string { return f.invalid },
	}, f.registry.MustRegister)
	return f
}

func (f *fixture) snapshot() *cluster.Snapshot {
	return &cluster.Snapshot{Services: f.services, Node: &cluster.Node{}}
}

// change creates or modifies a Service that has a port on addresses of both families.
func (f *fixture) change(name string, change func(*cluster.Service)) {
	key := cluster.ServiceName{Namespace: "ns", Name: name}
	service := &cluster.Service{
		Name: key, Ports: []cluster.ServicePort{{Protocol: cluster.TCP, Port: 80, NodePort: 30080}},
		ClusterIPs: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")},
	}
	if old, known := f.services.Get(key); known {
		copied := *old
		service = &copied
	}
	change(service)
	f.services = f.services.Set(key, service)
}

// slice replaces a Service's slices by one with one remote endpoint ("" for none).
func (f *fixture) slice(name, endpoint string, triggered time.Time) {
	slice := &cluster.EndpointSlice{Name: "slice", Triggered: triggered.UnixMicro(), Ports: []cluster.EndpointPort{{Protocol: cluster.TCP, Port: 80}}}
	if endpoint != "" {
		slice.Endpoints = []cluster.Endpoint{{Addr: netip.MustParseAddr(endpoint), Conditions: cluster.Ready}}
	}
	f.change(name, func(s *cluster.Service) { s.Slices = []*cluster.EndpointSlice{slice} })
}

func read(family cluster.Family) backend.Result {
	return backend.Result{Family: family, Read: true, Duration: 3 * time.Millisecond, Elements: 7, Rules: 2}
}

func wrote(family cluster.Family) backend.Result {
	return backend.Result{Family: family, Duration: time.Millisecond, Elements: 1}
}

func failed(family cluster.Family) backend.Result {
	return backend.Result{Family: family, Duration: time.Millisecond, Err: errors.New("the kernel refused")}
}

// sync calls Synced with the current state.
func (f *fixture) sync(finished time.Time, results ...backend.Result) {
	s := &proxy.Sync{After: f.snapshot(), Results: results, Finished: finished}
	s.Plan = plan.Compute(s.After, f.options, f.before)
	f.before = s.Plan
	f.Synced(f.history.Add(s))
}

// expect compares samples, written as "name{labels} value" without the prefix kubeproxy_. Other samples of the same names
// are an error.
func (f *fixture) expect(samples string) {
	f.t.Helper()
	wanted := map[string]string{}
	for line := range strings.Lines(samples) {
		if sample, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			wanted[sample] = value
		}
	}
	for sample, want := range wanted {
		if got := f.value(sample); got != want {
			f.t.Errorf("%s: got %s, want %s", sample, got, want)
		}
	}
}

// value returns the value of one sample; for a histogram its count.
func (f *fixture) value(sample string) string {
	f.t.Helper()
	name, labels, _ := strings.Cut(strings.TrimSuffix(sample, "}"), "{")
	filter := map[string]string{}
	for pair := range strings.SplitSeq(labels, ",") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			filter[key] = value
		}
	}
	if !strings.HasPrefix(name, "serviceproxy_") {
		name = "kubeproxy_" + name
	}
	families, err := f.registry.Gather()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			if testutil.LabelsMatch(metric, filter) {
				return fmt.Sprint(metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount()))
			}
		}
	}
	return "none"
}

// TestBeforeFirstSync checks the metrics before the first sync, which is queued since the start.
func TestBeforeFirstSync(t *testing.T) {
	f := newFixture(t)
	f.expect(fmt.Sprintf(`
		sync_proxy_rules_last_queued_timestamp_seconds{ip_family=IPv4} %[1]v
		sync_proxy_rules_last_queued_timestamp_seconds{ip_family=IPv6} %[1]v
		sync_proxy_rules_nftables_sync_failures_total{ip_family=IPv4} 0
		sync_proxy_rules_nftables_cleanup_failures_total{ip_family=IPv6} 0
		serviceproxy_rules_repaired_total{ip_family=IPv6} 0
		serviceproxy_relists_held_total 0
		serviceproxy_config_refused_total 0
		serviceproxy_config_differs 0
		serviceproxy_invalid_manifests 0
		sync_proxy_rules_no_local_endpoints_total{ip_family=IPv6,traffic_policy=internal} 0
		sync_proxy_rules_endpoint_changes_pending 0
		sync_proxy_rules_duration_seconds{ip_family=IPv4} none
	`, float64(start.Unix())))
}

func TestCounters(t *testing.T) {
	f := newFixture(t)
	f.RelistHeld()
	f.Waiting("node", true)
	f.Waiting("pod_cidrs", true)
	f.Waiting("pod_cidrs", false)
	f.WatchFailing("services", "unreachable")
	f.WatchFailing("services", "forbidden")
	f.WatchFailing("nodes", "busy")
	f.WatchFailing("nodes", "")
	f.ConfigRefused()
	f.ConfigDiffers(true)
	f.Healthz(200)
	f.Healthz(200)
	f.Healthz(503)
	f.Livez(200)
	f.Drifted(backend.Drift{Family: cluster.IPv6})
	f.Queued(time.Unix(1000, 0))
	f.invalid = []string{"web.yaml:3: spec.ports: unknown field", "2 more"}
	f.expect(`
		serviceproxy_invalid_manifests 1
		serviceproxy_relists_held_total 1
		serviceproxy_waiting{reason=node} 1
		serviceproxy_waiting{reason=pod_cidrs} 0
		serviceproxy_watch_failing{reason=unreachable,resource=services} 0
		serviceproxy_watch_failing{reason=forbidden,resource=services} 1
		serviceproxy_watch_failing{reason=busy,resource=nodes} 0
		serviceproxy_config_refused_total 1
		serviceproxy_config_differs 1
		proxy_healthz_total{code=200} 2
		proxy_healthz_total{code=503} 1
		proxy_livez_total{code=200} 1
		serviceproxy_rules_repaired_total{ip_family=IPv4} 0
		serviceproxy_rules_repaired_total{ip_family=IPv6} 1
		sync_proxy_rules_last_queued_timestamp_seconds{ip_family=IPv4} 1000
		sync_proxy_rules_last_queued_timestamp_seconds{ip_family=IPv6} 1000
	`)
}

func TestSyncs(t *testing.T) {
	f := newFixture(t)
	f.sync(time.Unix(1000, 5e8), read(cluster.IPv4), failed(cluster.IPv6))
	f.expect(`
		sync_proxy_rules_duration_seconds{ip_family=IPv4} 1
		sync_full_proxy_rules_duration_seconds{ip_family=IPv4} 1
		sync_partial_proxy_rules_duration_seconds{ip_family=IPv4} none
		sync_proxy_rules_duration_seconds{ip_family=IPv6} 1
		sync_proxy_rules_last_timestamp_seconds{ip_family=IPv4} 1000.5
		sync_proxy_rules_last_timestamp_seconds{ip_family=IPv6} none
		sync_proxy_rules_nftables_sync_failures_total{ip_family=IPv4} 0
		sync_proxy_rules_nftables_sync_failures_total{ip_family=IPv6} 1
		serviceproxy_elements_written_total{ip_family=IPv4} 7
		serviceproxy_rules_written_total{ip_family=IPv4} 2
	`)
	f.sync(time.Unix(1001, 0), wrote(cluster.IPv4), wrote(cluster.IPv6))
	f.expect(`
		sync_full_proxy_rules_duration_seconds{ip_family=IPv4} 1
		sync_partial_proxy_rules_duration_seconds{ip_family=IPv4} 1
		sync_proxy_rules_duration_seconds{ip_family=IPv4} 2
		sync_proxy_rules_last_timestamp_seconds{ip_family=IPv6} 1001
		serviceproxy_elements_written_total{ip_family=IPv4} 8
	`)
}

// TestNoNames checks a backend that has no metrics of its own.
func TestNoNames(t *testing.T) {
	f := newFixture(t)
	f.registry = metrics.NewKubeRegistry()
	f.Metrics = New(Config{Families: []cluster.Family{cluster.IPv4}, Snapshot: f.snapshot}, f.registry.MustRegister)
	f.sync(start, failed(cluster.IPv4))
	f.expect(`
		sync_proxy_rules_nftables_sync_failures_total{ip_family=IPv4} none
		sync_proxy_rules_duration_seconds{ip_family=IPv4} 1
	`)
}

func TestChanges(t *testing.T) {
	f := newFixture(t)
	expect := func(servicesPending, slicesPending, services, slices int) {
		t.Helper()
		f.expect(fmt.Sprintf(`
			sync_proxy_rules_service_changes_pending %d
			sync_proxy_rules_endpoint_changes_pending %d
			sync_proxy_rules_service_changes_total %d
			sync_proxy_rules_endpoint_changes_total %d
		`, servicesPending, slicesPending, services, slices))
	}
	f.slice("a", "10.0.0.1", time.Time{})
	f.change("b", func(*cluster.Service) {})
	expect(0, 0, 0, 0) // nobody may ask the builder for a snapshot before the first sync
	f.sync(start, wrote(cluster.IPv4), failed(cluster.IPv6))
	expect(2, 1, 0, 0)
	f.sync(start, wrote(cluster.IPv4), wrote(cluster.IPv6))
	expect(0, 0, 2, 1)
	f.slice("a", "10.0.0.2", time.Time{})
	expect(0, 1, 2, 1)
	f.change("a", func(s *cluster.Service) { s.Affinity = time.Minute })
	expect(1, 1, 2, 1)
	f.sync(start, wrote(cluster.IPv4), wrote(cluster.IPv6))
	expect(0, 0, 3, 2)
	f.services = f.services.Delete(cluster.ServiceName{Namespace: "ns", Name: "a"})
	expect(1, 1, 3, 2)
}

func TestSliceChanges(t *testing.T) {
	slices := map[byte]*cluster.EndpointSlice{}
	for _, c := range []byte("abcdABCD") {
		slices[c] = &cluster.EndpointSlice{Name: strings.ToLower(string(c))}
	}
	service := func(names string) *cluster.Service {
		if names == "" {
			return nil
		}
		s := &cluster.Service{}
		for _, c := range []byte(names) {
			s.Slices = append(s.Slices, slices[c])
		}
		return s
	}
	// A capital letter is another version of the slice of that name.
	for _, test := range []struct{ before, after, want string }{
		{"", "", ""},
		{"", "ab", "+a+b"},
		{"ab", "", "-a-b"},
		{"abc", "abc", ""},
		{"abc", "aBc", "~b"},
		{"ac", "abcd", "+b+d"},
		{"abcd", "bd", "-a-c"},
		{"ab", "cd", "-a-b+c+d"},
		{"acd", "AbD", "~a+b-c~d"},
	} {
		var got strings.Builder
		for old, now := range sliceChanges(service(test.before), service(test.after)) {
			switch {
			case now == nil:
				got.WriteString("-" + old.Name)
			case old == nil:
				got.WriteString("+" + now.Name)
			default:
				got.WriteString("~" + now.Name)
			}
		}
		if got.String() != test.want {
			t.Errorf("from %q to %q: got %q, want %q", test.before, test.after, got.String(), test.want)
		}
	}
}

func TestNetworkProgramming(t *testing.T) {
	f := newFixture(t)
	both := []backend.Result{wrote(cluster.IPv4), wrote(cluster.IPv6)}
	expect := func(v4, v6 string) {
		t.Helper()
		f.expect("network_programming_duration_seconds{ip_family=IPv4} " + v4 + "\nnetwork_programming_duration_seconds{ip_family=IPv6} " + v6)
	}
	at := func(second int) time.Time { return start.Add(time.Duration(second) * time.Second) }
	f.slice("old", "10.0.0.1", at(-1)) // before this process started
	f.slice("none", "10.0.0.2", time.Time{})
	f.slice("new", "10.0.0.3", at(1))
	f.sync(at(2), both...)
	expect("1", "0")
	f.slice("new", "10.0.0.4", at(3))
	f.slice("six", "2001:db8::2", at(3))
	f.sync(at(4), wrote(cluster.IPv4), failed(cluster.IPv6))
	expect("2", "0")
	f.sync(at(5), both...) // changes that IPv4 already has are not counted again
	expect("2", "1")
	f.slice("six", "", at(6)) // an emptied slice belongs to its earlier family
	f.sync(at(7), both...)
	expect("2", "2")
	f.services = f.services.Delete(cluster.ServiceName{Namespace: "ns", Name: "new"})
	f.sync(at(8), both...)
	expect("2", "2")
	f.slice("future", "10.0.0.5", at(100)) // the clocks differ
	f.sync(at(9), both...)
	expect("3", "2")
}

func TestNoLocalEndpoints(t *testing.T) {
	f := newFixture(t)
	both := []backend.Result{wrote(cluster.IPv4), wrote(cluster.IPv6)}
	expect := func(internal4, external4, internal6, external6 int) {
		t.Helper()
		f.sync(start, both...)
		f.expect(fmt.Sprintf(`
			sync_proxy_rules_no_local_endpoints_total{ip_family=IPv4,traffic_policy=internal} %d
			sync_proxy_rules_no_local_endpoints_total{ip_family=IPv4,traffic_policy=external} %d
			sync_proxy_rules_no_local_endpoints_total{ip_family=IPv6,traffic_policy=internal} %d
			sync_proxy_rules_no_local_endpoints_total{ip_family=IPv6,traffic_policy=external} %d
		`, internal4, external4, internal6, external6))
	}
	f.slice("a", "10.0.0.1", time.Time{})
	expect(0, 0, 0, 0)
	f.change("a", func(s *cluster.Service) { s.InternalPolicy = cluster.PolicyLocal })
	expect(1, 0, 0, 0)
	f.change("a", func(s *cluster.Service) {
		s.ExternalPolicy = cluster.PolicyLocal
		s.External = &cluster.External{LoadBalancerIPs: []netip.Addr{netip.MustParseAddr("198.51.100.1")}} // counts as one port with several addresses
	})
	expect(1, 1, 0, 0)
	f.change("a", func(s *cluster.Service) { s.InternalPolicy = cluster.PolicyCluster })
	expect(0, 1, 0, 0)
	f.slice("a", "2001:db8::2", time.Time{})
	expect(0, 0, 0, 1)
	f.slice("a", "", time.Time{}) // a port without any endpoint is not counted
	expect(0, 0, 0, 0)
	f.slice("a", "10.0.0.1", time.Time{})
	expect(0, 1, 0, 0)
	f.services = f.services.Delete(cluster.ServiceName{Namespace: "ns", Name: "a"})
	expect(0, 0, 0, 0)
}

func TestContested(t *testing.T) {
	f := newFixture(t)
	f.change("a", func(*cluster.Service) {})
	f.sync(start, wrote(cluster.IPv4))
	f.expect("serviceproxy_contested_frontends 0")
	f.change("b", func(*cluster.Service) {}) // the same cluster IPs and node port, in both families
	f.sync(start, wrote(cluster.IPv4))
	f.expect("serviceproxy_contested_frontends 4")
}

// TestDelayed checks the number of Services whose change is delayed, until it is no longer.
func TestDelayed(t *testing.T) {
	f := newFixture(t)
	for _, delayed := range []int{0, 2, 0} {
		s := &proxy.Sync{After: f.snapshot(), Results: []backend.Result{wrote(cluster.IPv4)}, Finished: start, Delayed: make([]proxy.Delay, delayed)}
		s.Plan = plan.Compute(s.After, f.options, nil)
		f.Synced(f.history.Add(s))
		f.expect(fmt.Sprint("serviceproxy_services_delayed ", delayed))
	}
}

// TestFastPathDevices checks the number of devices of the plan.
func TestFastPathDevices(t *testing.T) {
	f := newFixture(t)
	for on, want := range map[bool]int{true: 1, false: 0} {
		snapshot := *f.snapshot()
		node := *snapshot.Node
		node.Devices, snapshot.Node = []cluster.Device{{Name: "eth0", Index: 2}}, &node
		s := &proxy.Sync{After: &snapshot, Results: []backend.Result{wrote(cluster.IPv4)}, Finished: start}
		s.Plan = plan.Compute(s.After, &plan.Options{FastPath: plan.FastPath{On: on}}, nil)
		f.Synced(f.history.Add(s))
		f.expect(fmt.Sprint("serviceproxy_fast_path_devices ", want))
	}
}

// TestTables checks the number of rules in each table, and the counters of full and partial failures.
func TestTables(t *testing.T) {
	f := newFixture(t)
	result := read(cluster.IPv4)
	result.Tables = []backend.Table{{Name: "nat", Rules: 70, Written: 70}, {Name: "filter", Rules: 5, Written: 5}}
	f.sync(start, result)
	result = wrote(cluster.IPv4)
	result.Tables = []backend.Table{{Name: "nat", Rules: 71, Written: 3}, {Name: "filter", Rules: 5}}
	f.sync(start, result)
	f.sync(start, failed(cluster.IPv4))
	result = failed(cluster.IPv4)
	result.Read = true
	f.sync(start, result)
	f.expect(`sync_proxy_rules_iptables_total{ip_family=IPv4,table=nat} 71
		sync_proxy_rules_iptables_total{ip_family=IPv4,table=filter} 5
		sync_proxy_rules_iptables_last{ip_family=IPv4,table=nat} 3
		sync_proxy_rules_iptables_last{ip_family=IPv4,table=filter} 0
		sync_proxy_rules_iptables_partial_restore_failures_total{ip_family=IPv4} 1
		sync_proxy_rules_iptables_partial_restore_failures_total{ip_family=IPv6} 0
		sync_proxy_rules_nftables_sync_failures_total{ip_family=IPv4} 2
		sync_proxy_rules_nftables_sync_failures_total{ip_family=IPv6} 0`)
}

// TestRefused checks the number of refused ports after a successful and a failed sync.
func TestRefused(t *testing.T) {
	f := newFixture(t)
	result := wrote(cluster.IPv4)
	result.Refused, result.Err = make([]backend.Refusal, 2), errors.New("refused")
	f.sync(start, result)
	f.expect("serviceproxy_refused_service_ports{ip_family=IPv4} 2")
	result.Refused, result.Err = result.Refused[:1], nil
	f.sync(start, result)
	f.expect("serviceproxy_refused_service_ports{ip_family=IPv4} 1")
}

// TestRejectedOnLocalhost checks kernel counters that grow, restart at 0 or cannot be read.
func TestRejectedOnLocalhost(t *testing.T) {
	f := newFixture(t)
	for _, test := range []struct {
		kernel map[cluster.Protocol]uint64
		want   string
	}{
		{map[cluster.Protocol]uint64{cluster.UDP: 3, cluster.SCTP: 0}, "3"},
		{map[cluster.Protocol]uint64{cluster.UDP: 5, cluster.SCTP: 0}, "5"},
		{nil, "5"},
		{map[cluster.Protocol]uint64{cluster.UDP: 2, cluster.SCTP: 0}, "7"},
	} {
		f.rejected = test.kernel
		f.expect("nftables_localhost_nodeport_rejected_packets_total{ip_family=IPv4,protocol=UDP} " + test.want +
			"\nnftables_localhost_nodeport_rejected_packets_total{ip_family=IPv4,protocol=SCTP} 0")
	}
}

// TestAffinity checks what the metrics of session affinity show of the kernel's maps and counter.
func TestAffinity(t *testing.T) {
	f := newFixture(t)
	for _, test := range []struct {
		clients  backend.Clients
		fullness string
		refused  string
	}{
		{backend.Clients{Fullest: 0.25, Refused: 3}, "0.25", "3"},
		{backend.Clients{}, "0.25", "3"},
		{backend.Clients{Fullest: 1, Refused: 5}, "1", "5"},
		{backend.Clients{Refused: 1}, "0", "6"},
	} {
		f.clients = test.clients
		f.expect("serviceproxy_affinity_fullness_ratio{ip_family=IPv4} " + test.fullness + "\nserviceproxy_affinity_fullness_ratio{ip_family=IPv6} 0\n" +
			"serviceproxy_affinity_refused_total{ip_family=IPv4} " + test.refused)
	}
}

// TestCounted checks kernel counters of both families that grow, restart at 0 or cannot be read.
func TestCounted(t *testing.T) {
	f := newFixture(t)
	type byFamily = map[cluster.Family]uint64
	for _, test := range []struct {
		dropped, accepted byFamily
		want, wantAlso    string
	}{
		{nil, nil, "0", "0"},
		{byFamily{cluster.IPv4: 3, cluster.IPv6: 4}, byFamily{cluster.IPv4: 1, cluster.IPv6: 0}, "7", "1"},
		{byFamily{cluster.IPv4: 3, cluster.IPv6: 6}, byFamily{cluster.IPv6: 0}, "9", "1"},
		{byFamily{cluster.IPv6: 7}, byFamily{cluster.IPv4: 5, cluster.IPv6: 0}, "10", "5"},
		{byFamily{cluster.IPv4: 2, cluster.IPv6: 7}, byFamily{cluster.IPv4: 0, cluster.IPv6: 0}, "12", "5"},
		{byFamily{cluster.IPv4: 2, cluster.IPv6: 7}, byFamily{cluster.IPv4: 2, cluster.IPv6: 0}, "12", "7"},
	} {
		f.packets = packets{test.dropped, test.accepted}
		f.expect("iptables_ct_state_invalid_dropped_packets_total " + test.want +
			"\niptables_localhost_nodeports_accepted_packets_total " + test.wantAlso)
	}
}

// TestExternalIPs checks the last reported numbers, and the initial zeros.
func TestExternalIPs(t *testing.T) {
	f := newFixture(t)
	f.expect(`services_with_external_ips{served=false} 0
		services_with_external_ips{served=true} 0`)
	f.ExternalIPs(2, 3)
	f.expect(`services_with_external_ips{served=false} 3
		services_with_external_ips{served=true} 2`)
}
