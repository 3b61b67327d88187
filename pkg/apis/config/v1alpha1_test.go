package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	upstream "k8s.io/kube-proxy/config/v1alpha1"
)

// TestPathsLeadToFields checks that every field of this version has a place in the latest version, and vice versa.
func TestPathsLeadToFields(t *testing.T) {
	latest := jsonPaths(reflect.TypeFor[KubeProxyConfiguration](), "", func(f reflect.StructField) string { return strings.ToLower(f.Name) })
	old := jsonPaths(reflect.TypeFor[upstream.KubeProxyConfiguration](), "", func(f reflect.StructField) string {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		return name
	})
	for _, path := range old {
		to := latestPath(path)
		if to == "" {
			if path != "portRange" {
				t.Errorf("%s has no place in the latest version", path)
			}
			continue
		}
		if !slices.Contains(latest, strings.ToLower(to)) {
			t.Errorf("%s is said to be at %s, which does not exist", path, to)
		}
		section, _, _ := strings.Cut(path, ".")
		if back := PathInV1alpha1(to, ProxyMode(section)); back != path && !strings.HasSuffix(path, "masqueradeAll") {
			t.Errorf("%s goes to %s and comes back as %s", path, to, back)
		}
	}
	for _, path := range jsonPaths(reflect.TypeFor[KubeProxyConfiguration](), "", func(f reflect.StructField) string {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		return name
	}) {
		if from := PathInV1alpha1(path, ProxyModeNFTables); from != "" && !slices.Contains(old, from) {
			t.Errorf("%s is said to be at %s in this version, which does not exist", path, from)
		}
	}
	for path, want := range map[string]string{"linux": "", "linux.nothing": "", "configHardFail": "", "detectLocal.clusterCIDRs[1]": "clusterCIDR",
		"nodeIPOverride[0]": "bindAddress", "nodePortAddresses[2]": "nodePortAddresses[2]", "ipvs.masqueradeBit": "iptables.masqueradeBit"} {
		if got := PathInV1alpha1(path, ""); got != want {
			t.Errorf("Path(%s) is %q, want %q", path, got, want)
		}
	}
}

// jsonPaths returns the paths of the configuration's own structs.
func jsonPaths(t reflect.Type, prefix string, name func(reflect.StructField) string) []string {
	var paths []string
	for f := range t.Fields() {
		if f.Type == reflect.TypeFor[metav1.TypeMeta]() {
			continue
		}
		path := prefix + name(f)
		paths = append(paths, path)
		if f.Type.Kind() == reflect.Struct && f.Type != reflect.TypeFor[metav1.Duration]() && !strings.Contains(strings.ToLower(path), "logging") {
			paths = append(paths, jsonPaths(f.Type, path+".", name)...)
		}
	}
	return paths
}

// TestServerDefaults checks that the servers' addresses have the family of bindAddress.
func TestServerDefaults(t *testing.T) {
	tests := []struct{ bind, healthz, metrics, wantHealthz, wantMetrics string }{
		{"", "", "", "0.0.0.0:10256", "127.0.0.1:10249"},
		{"10.0.0.1", "", "", "0.0.0.0:10256", "127.0.0.1:10249"},
		{"::", "", "", "[::]:10256", "[::1]:10249"},
		{"fd00::1", "", "", "[::]:10256", "[::1]:10249"},
		{"", "10.0.0.1", "::1", "10.0.0.1:10256", "[::1]:10249"},
		{"", "010.0.0.1", "127.0.0.01:80", "10.0.0.1:10256", "127.0.0.1:80"},
		{"", "10.0.0.1:1", "[::1]:2", "10.0.0.1:1", "[::1]:2"},
		{"", "nonsense", "", "nonsense", "127.0.0.1:10249"},
	}
	for _, tt := range tests {
		cfg := &upstream.KubeProxyConfiguration{BindAddress: tt.bind, HealthzBindAddress: tt.healthz, MetricsBindAddress: tt.metrics}
		setV1alpha1Defaults(cfg)
		got := fromV1alpha1(cfg)
		if got.HealthzBindAddress != tt.wantHealthz || got.MetricsBindAddress != tt.wantMetrics {
			t.Errorf("%+v: got %s and %s", tt, got.HealthzBindAddress, got.MetricsBindAddress)
		}
	}
}

// TestActiveSectionCounts checks which section the shared settings are read from.
func TestActiveSectionCounts(t *testing.T) {
	period := func(seconds int) metav1.Duration {
		return metav1.Duration{Duration: time.Duration(seconds) * time.Second}
	}
	in := &upstream.KubeProxyConfiguration{}
	in.IPTables.SyncPeriod, in.IPTables.MinSyncPeriod = period(10), period(1)
	in.IPVS.SyncPeriod, in.IPVS.MinSyncPeriod = period(20), period(2)
	in.NFTables.SyncPeriod, in.NFTables.MinSyncPeriod = period(30), period(3)
	in.IPTables.MasqueradeAll = true
	for mode, want := range map[string]struct {
		sync, minSync int
		masqueradeAll bool
	}{"": {10, 1, true}, "iptables": {10, 1, true}, "ipvs": {20, 2, true}, "nftables": {30, 3, false}, "kernelspace": {10, 1, true}} {
		in.Mode = upstream.ProxyMode(mode)
		out := fromV1alpha1(in)
		if out.SyncPeriod != period(want.sync) || out.MinSyncPeriod != period(want.minSync) || out.Linux.MasqueradeAll != want.masqueradeAll {
			t.Errorf("mode %q: %v, %v, %t; want %+v", mode, out.SyncPeriod, out.MinSyncPeriod, out.Linux.MasqueradeAll, want)
		}
	}
}

// TestDropped checks the dropped settings of a file.
func TestDropped(t *testing.T) {
	in := &upstream.KubeProxyConfiguration{Mode: "nftables", PortRange: "1-2"}
	in.IPTables.SyncPeriod.Duration = 5 * time.Second
	in.IPTables.MasqueradeAll = true
	in.IPVS.SyncPeriod.Duration = 30 * time.Second // as the active mode's default
	want := []string{
		"portRange: dropped; it has had no effect for years",
		"iptables.syncPeriod: 5s dropped; all modes share one setting, and mode nftables has 30s",
		"iptables.masqueradeAll: true dropped; all modes share one setting, and mode nftables has false",
	}
	var got []string
	for _, loss := range droppedFrom(in) {
		got = append(got, loss.String())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestMissingIn checks the settings that this version cannot express.
func TestMissingIn(t *testing.T) {
	in := &KubeProxyConfiguration{NodeIPOverride: []string{"10.0.0.1", "fd00::1"}, IPFamilyPolicy: IPFamilyPolicySingleStack, ConfigHardFail: true}
	in.IPVS.MasqueradeBit = 3
	want := []string{
		"nodeIPOverride: only 10.0.0.1 is kept, as bindAddress, which is one address",
		"ipFamilyPolicy: SingleStack dropped; v1alpha1 serves the families that work",
		"configHardFail: true dropped; v1alpha1 logs a warning and continues",
		"healthzBindAddress: the server cannot be disabled in v1alpha1; it listens on its default address",
		"metricsBindAddress: the server cannot be disabled in v1alpha1; it listens on its default address",
		"minSyncPeriod: 0s is written as 1ns, which behaves alike; in v1alpha1 0s means the default of 1s",
		"ipvs.masqueradeBit: 3 dropped; iptables and ipvs share one bit in v1alpha1, and the iptables section has 0",
	}
	var got []string
	for _, loss := range MissingInV1alpha1(in) {
		got = append(got, loss.String())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
