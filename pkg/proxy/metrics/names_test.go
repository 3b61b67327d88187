package metrics

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	promtestutil "github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// upstreamNames lists every name kubeproxy_* of kube-proxy 1.37, with where it is defined. Names and meanings never
// change.
const upstreamNames = `
sync_proxy_rules_duration_seconds                                 histogram ip_family                here
sync_full_proxy_rules_duration_seconds                            histogram ip_family                here
sync_partial_proxy_rules_duration_seconds                         histogram ip_family                here
network_programming_duration_seconds                              histogram ip_family                here
sync_proxy_rules_last_timestamp_seconds                           gauge     ip_family                here
sync_proxy_rules_last_queued_timestamp_seconds                    gauge     ip_family                here
sync_proxy_rules_endpoint_changes_pending                         gauge     -                        here
sync_proxy_rules_endpoint_changes_total                           counter   -                        here
sync_proxy_rules_service_changes_pending                          gauge     -                        here
sync_proxy_rules_service_changes_total                            counter   -                        here
sync_proxy_rules_no_local_endpoints_total                         gauge     ip_family,traffic_policy here
proxy_healthz_total                                               counter   code                     here
proxy_livez_total                                                 counter   code                     here
sync_proxy_rules_nftables_sync_failures_total                     counter   ip_family                here
sync_proxy_rules_nftables_cleanup_failures_total                  counter   ip_family                here
conntrack_reconciler_sync_duration_seconds                        histogram ip_family                here
conntrack_reconciler_deleted_entries_total                        counter   ip_family                here
sync_proxy_rules_iptables_total                                   gauge     ip_family,table          here
sync_proxy_rules_iptables_last                                    gauge     ip_family,table          here
sync_proxy_rules_iptables_restore_failures_total                  counter   ip_family                iptables
sync_proxy_rules_iptables_partial_restore_failures_total          counter   ip_family                here
iptables_ct_state_invalid_dropped_packets_total                   counter   -                        here
iptables_localhost_nodeports_accepted_packets_total               counter   -                        here
nftables_localhost_nodeport_listeners                             gauge     ip_family                here
nftables_localhost_nodeport_listener_creation_failures_total      counter   ip_family                here
nftables_localhost_nodeport_rejected_packets_total                counter   ip_family,protocol       here
sync_proxy_rules_winkernel_lb_create_failures_total               counter   ip_family,lb_type,error  windows
sync_proxy_rules_winkernel_lb_update_failures_total               counter   ip_family,lb_type,error  windows
sync_proxy_rules_winkernel_lb_delete_failures_total               counter   ip_family,lb_type,error  windows
`

// agreedNames lists our own names kubeproxy_*, for metrics of a feature gate that kube-proxy has too.
const agreedNames = `
services_with_external_ips gauge served here
`

const ownNames = `
rules_repaired_total   counter ip_family here
connections_closed_total counter server  here
connections_to_gone_endpoints_reset_total counter ip_family here
elements_written_total counter ip_family here
rules_written_total    counter ip_family here
relists_held_total     counter -         here
config_refused_total   counter -         here
config_differs         gauge   -         here
invalid_manifests      gauge   -         here
contested_frontends    gauge   -         here
dataplane_broken       gauge   check     here
services_delayed       gauge   -         here
fast_path_devices      gauge   -         here
dataplane_broken       gauge   check     here
refused_service_ports  gauge   ip_family here
waiting                gauge   reason    here
watch_failing          gauge   reason,resource here
other_proxy_last_seen_timestamp_seconds gauge mode here
services_with_problems gauge   reason    here
affinity_fullness_ratio gauge   ip_family here
affinity_refused_total  counter ip_family here
connection_read_failures_total counter ip_family here
service_connections_total      counter port,protocol,service_name,service_namespace here
service_connections_limited_total counter service_name,service_namespace here
endpoint_connections_total     counter endpoint_address,port,protocol,service_name,service_namespace here
`

// exercised returns the registry of a Metrics in which every series exists.
func exercised(t *testing.T) metrics.KubeRegistry {
	t.Helper()
	f := newFixture(t)
	f.Queued(start)
	f.Drifted(backend.Drift{Family: cluster.IPv4})
	f.RelistHeld()
	f.ConnectionClosed("healthz")
	f.Waiting("node", true)
	f.DataplaneBroken("IPv4", true)
	f.WatchFailing("services", "unreachable")
	f.OtherProxySeen("iptables", start)
	f.Healthz(200)
	f.Livez(503)
	f.ConnectionsReset(cluster.IPv4, 2)
	f.ConntrackSwept(cluster.IPv6, time.Millisecond, 2)
	f.LocalhostListening(cluster.IPv4, 3)
	f.LocalhostFailed(cluster.IPv4)
	f.rejected = map[cluster.Protocol]uint64{cluster.UDP: 1}
	f.slice("a", "10.0.0.1", start.Add(time.Second))
	f.options.Fences.On = true
	f.change("a", func(s *cluster.Service) { s.Fence = &cluster.AskedFence{Fence: cluster.Fence{Open: 1}} })
	tables := read(cluster.IPv4)
	tables.Tables = []backend.Table{{Name: "nat", Rules: 1, Written: 1}}
	f.sync(start.Add(2*time.Second), tables, wrote(cluster.IPv6))
	f.kernel.err = errors.New("cannot read the counters")
	if _, err := f.registry.Gather(); err != nil { // counts the failure
		t.Fatal(err)
	}
	return f.registry
}

func TestNames(t *testing.T) {
	families, err := exercised(t).Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, family := range families {
		got = append(got, describe(family))
	}
	want := slices.Concat(namesHere("kubeproxy_", upstreamNames), namesHere("kubeproxy_", agreedNames), namesHere("serviceproxy_", ownNames))
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("names, types and labels (-want +got):\n%s", diff)
	}
}

// namesHere returns the lines of a table that this package defines.
func namesHere(prefix, table string) []string {
	var names []string
	for line := range strings.Lines(table) {
		if fields := strings.Fields(line); len(fields) == 4 && fields[3] == "here" {
			names = append(names, prefix+strings.Join(fields[:3], " "))
		}
	}
	return names
}

// describe formats a metric family as in the tables.
func describe(family *testutil.MetricFamily) string {
	var labels []string
	for _, label := range family.GetMetric()[0].GetLabel() {
		labels = append(labels, label.GetName())
	}
	if labels == nil {
		labels = []string{"-"}
	}
	return fmt.Sprintf("%s %s %s", family.GetName(), strings.ToLower(family.GetType().String()), strings.Join(labels, ","))
}

func TestStability(t *testing.T) {
	families, err := exercised(t).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if !strings.HasPrefix(family.GetHelp(), "[ALPHA] ") {
			t.Errorf("%s: %s", family.GetName(), family.GetHelp())
		}
	}
}

func TestBuckets(t *testing.T) {
	families, err := exercised(t).Gather()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"kubeproxy_sync_proxy_rules_duration_seconds": "0.001 0.002 0.004 0.008 0.016 0.032 0.064 0.128 0.256 0.512 1.024 2.048 4.096 8.192 16.384",
		"kubeproxy_network_programming_duration_seconds": "0.25 0.5 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 " +
			"30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 " +
			"60 65 70 75 80 85 90 95 100 105 110 115 120 150 180 210 240 270 300",
	}
	want["kubeproxy_sync_full_proxy_rules_duration_seconds"] = want["kubeproxy_sync_proxy_rules_duration_seconds"]
	want["kubeproxy_sync_partial_proxy_rules_duration_seconds"] = want["kubeproxy_sync_proxy_rules_duration_seconds"]
	want["kubeproxy_conntrack_reconciler_sync_duration_seconds"] = want["kubeproxy_sync_proxy_rules_duration_seconds"]
	got := map[string]string{}
	for _, family := range families {
		if family.GetType().String() != "HISTOGRAM" {
			continue
		}
		var bounds []string
		for _, bucket := range family.GetMetric()[0].GetHistogram().GetBucket() {
			bounds = append(bounds, fmt.Sprint(bucket.GetUpperBound()))
		}
		got[family.GetName()] = strings.Join(bounds, " ")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("buckets (-want +got):\n%s", diff)
	}
}

// TestLint runs promtool's linter with component-base's exceptions for kube-proxy's names.
func TestLint(t *testing.T) {
	problems, err := promtestutil.GatherAndLint(exercised(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := testutil.GetLintError(problems); err != nil {
		t.Error(err)
	}
}
