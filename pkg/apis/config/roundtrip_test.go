package config

import (
	stdcmp "cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	upstream "k8s.io/kube-proxy/config/v1alpha1"
	netutils "k8s.io/utils/net"
	"sigs.k8s.io/randfill"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/seed-11a05479/kube-proxy/pkg/userfile"
)

// rounds is the number of random configurations for each round trip.
const rounds = 150

// newFiller fills objects with random values in every field; fields with a fixed set of values get one of these.
func newFiller(seed int64) *randfill.Filler {
	pick := func(c randfill.Continue, values ...string) string { return values[c.Intn(len(values))] }
	return randfill.NewWithSeed(seed).NilChance(0.3).NumElements(0, 3).MaxDepth(10).Funcs(
		func(t *metav1.TypeMeta, _ randfill.Continue) { *t = metav1.TypeMeta{} },
		func(d *metav1.Duration, c randfill.Continue) {
			d.Duration = []time.Duration{0, time.Second, time.Duration(c.Int63n(int64(90 * time.Minute)))}[c.Intn(3)]
		},
		func(d *logsapi.TimeOrMetaDuration, c randfill.Continue) {
			c.Fill(&d.Duration)
			d.SerializeAsString = c.Bool()
		},
		func(q *resource.QuantityValue, c randfill.Continue) {
			q.Quantity = *resource.NewQuantity(c.Int63n(1<<40), resource.BinarySI)
		},
		func(s *string, c randfill.Continue) {
			*s = pick(c, "", "10.0.0.1", "fd00::1", "::", "0.0.0.0", "10.0.0.0/8,fd00::/8", "a b", "yes", "012", "{[,", "line\nbreak", c.String(12))
		},
		func(m *upstream.ProxyMode, c randfill.Continue) {
			*m = upstream.ProxyMode(pick(c, "", "iptables", "ipvs", "nftables", "kernelspace"))
		},
		func(m *ProxyMode, c randfill.Continue) {
			*m = ProxyMode(pick(c, "", "iptables", "ipvs", "nftables", "kernelspace"))
		},
	)
}

// reread writes a configuration in a version and reads it again.
func reread(t *testing.T, cfg *KubeProxyConfiguration, version string) *File {
	t.Helper()
	data, err := Encode(cfg, version)
	if err != nil {
		t.Fatal(err)
	}
	file, err := ParseFile("written.yaml", data)
	if err != nil {
		t.Fatalf("what was written cannot be read: %v\n%s", err, data)
	}
	if len(file.Warnings) > 0 {
		t.Fatalf("what was written is doubtful: %v\n%s", file.Warnings, data)
	}
	return file
}

// TestLatestIsComplete checks that a file of the latest version can express every configuration.
func TestLatestIsComplete(t *testing.T) {
	for seed := range int64(rounds) {
		in := &KubeProxyConfiguration{}
		newFiller(seed).Fill(in)
		cfg := completed(in)
		if again := reread(t, cfg, Version).Config; !equality.Semantic.DeepEqual(cfg, again) {
			t.Fatalf("seed %d: written and read again, it differs (-before +after):\n%s", seed, cmp.Diff(cfg, again))
		}
		if copied := cfg.DeepCopyObject(); !equality.Semantic.DeepEqual(cfg, copied) {
			t.Fatalf("seed %d: copied, it differs (-before +after):\n%s", seed, cmp.Diff(cfg, copied))
		}
	}
}

// TestV1alpha1RoundTrip checks that a file of v1alpha1, converted to the latest version and back, is equivalent in
// the active mode, and that every other difference is in the list of dropped settings.
func TestV1alpha1RoundTrip(t *testing.T) {
	changed := map[string]bool{}
	for seed := range int64(rounds) {
		raw := &upstream.KubeProxyConfiguration{}
		newFiller(seed).Fill(raw)
		data, err := sigsyaml.Marshal(withKind(raw))
		if err != nil {
			t.Fatal(err)
		}
		first, err := ParseFile("first.yaml", data)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, data)
		}
		middle := reread(t, first.Config, Version)
		last := reread(t, middle.Config, V1alpha1)

		before, after := withDefaults(raw), toV1alpha1(middle.Config)
		said := droppedPaths(first.Dropped)
		said = append(said, differentMeaningless(before, after)...)
		for _, path := range differences(before, after) {
			changed[path] = true
			if !slices.Contains(said, path) {
				t.Fatalf("seed %d, mode %q: %s changed without a word (-before +after):\n%s", seed, raw.Mode, path, cmp.Diff(before, after))
			}
		}
		if !equality.Semantic.DeepEqual(first.Config, last.Config) {
			t.Fatalf("seed %d: the meaning changed (-before +after):\n%s", seed, cmp.Diff(first.Config, last.Config))
		}
	}
	for _, path := range []string{"portRange", "nftables.syncPeriod", "iptables.minSyncPeriod", "nftables.masqueradeAll", "ipvs.syncPeriod"} {
		if !changed[path] {
			t.Errorf("no random file changed %s: the fuzzer does not reach what it is there for", path)
		}
	}
}

// differentMeaningless returns the paths at which two equivalent files may differ although nothing was dropped: other
// spellings of "no address", and settings in inactive sections that were missing or had the default of what all modes
// share now.
func differentMeaningless(before, after *upstream.KubeProxyConfiguration) []string {
	var paths []string
	if ip := netutils.ParseIPSloppy(before.BindAddress); ip != nil && ip.IsUnspecified() && after.BindAddress == "0.0.0.0" {
		paths = append(paths, "bindAddress")
	}
	active := "iptables"
	if mode := string(before.Mode); mode == "ipvs" || mode == "nftables" {
		active = mode
	}
	inactive := func(section, name string, isDefault bool) {
		if section != active && isDefault {
			paths = append(paths, section+"."+name)
		}
	}
	inactive("iptables", "syncPeriod", before.IPTables.SyncPeriod.Duration == 30*time.Second)
	inactive("ipvs", "syncPeriod", before.IPVS.SyncPeriod.Duration == 30*time.Second)
	inactive("nftables", "syncPeriod", before.NFTables.SyncPeriod.Duration == 30*time.Second)
	inactive("iptables", "minSyncPeriod", before.IPTables.MinSyncPeriod.Duration == time.Second)
	inactive("ipvs", "minSyncPeriod", before.IPVS.MinSyncPeriod.Duration == 0)
	inactive("nftables", "minSyncPeriod", before.NFTables.MinSyncPeriod.Duration == time.Second)
	if active == "nftables" {
		inactive("iptables", "masqueradeAll", !before.IPTables.MasqueradeAll)
	} else {
		inactive("nftables", "masqueradeAll", !before.NFTables.MasqueradeAll)
	}
	return paths
}

// TestLossesAreReported checks that every setting that v1alpha1 cannot express is in the list of losses.
func TestLossesAreReported(t *testing.T) {
	for seed := range int64(rounds) {
		in := &KubeProxyConfiguration{}
		newFiller(seed).Fill(in)
		cfg := completed(in)
		losses := MissingInV1alpha1(cfg)
		again := reread(t, cfg, V1alpha1).Config

		said := droppedPaths(losses)
		for _, path := range differences(cfg, again) {
			if refused(cfg, path) {
				continue
			}
			if !slices.Contains(said, path) {
				t.Fatalf("seed %d: %s changed without a word (-before +after):\n%s", seed, path, cmp.Diff(cfg, again))
			}
		}
	}
}

// refused reports whether validation refuses the value at a path, so that no conversion ever meets it.
func refused(in *KubeProxyConfiguration, path string) bool {
	switch path {
	case "syncPeriod":
		return in.SyncPeriod.Duration == 0
	case "configSyncPeriod":
		return in.ConfigSyncPeriod.Duration == 0
	case "nodeIPOverride":
		ip := netutils.ParseIPSloppy(in.NodeIPOverride[0])
		return ip == nil || ip.IsUnspecified()
	case "detectLocal.clusterCIDRs":
		return slices.ContainsFunc(in.DetectLocal.ClusterCIDRs, func(cidr string) bool { return cidr == "" || strings.Contains(cidr, ",") })
	}
	return false
}

// completed makes a random configuration one that could be in force.
func completed(in *KubeProxyConfiguration) *KubeProxyConfiguration {
	in.TypeMeta = Default().TypeMeta
	in.Complete()
	return in
}

// withDefaults returns what the fields of a v1alpha1 file mean.
func withDefaults(raw *upstream.KubeProxyConfiguration) *upstream.KubeProxyConfiguration {
	out := withKind(raw)
	setV1alpha1Defaults(out)
	latest := toV1alpha1(fromV1alpha1(out))
	out.HealthzBindAddress, out.MetricsBindAddress = latest.HealthzBindAddress, latest.MetricsBindAddress
	out.ClientConnection.ContentType = stdcmp.Or(out.ClientConnection.ContentType, "application/vnd.kubernetes.protobuf")
	out.ClientConnection.QPS, out.ClientConnection.Burst = stdcmp.Or(out.ClientConnection.QPS, 5), stdcmp.Or(out.ClientConnection.Burst, 10)
	logsapi.SetRecommendedLoggingConfiguration(&out.Logging)
	out.Logging.FlushFrequency.SerializeAsString = true
	return out
}

// withKind says what a v1alpha1 object is.
func withKind(in *upstream.KubeProxyConfiguration) *upstream.KubeProxyConfiguration {
	out := in.DeepCopy()
	out.SetGroupVersionKind(upstream.SchemeGroupVersion.WithKind(Kind))
	return out
}

// droppedPaths returns the fields of losses.
func droppedPaths(losses []Loss) []string {
	var paths []string
	for _, l := range losses {
		paths = append(paths, l.Field)
	}
	return paths
}

// differences returns the paths of the leaves at which two objects differ when written to a file.
func differences(a, b any) []string {
	var paths []string
	left, right := flatten(a), flatten(b)
	for path := range left {
		if left[path] != right[path] {
			paths = append(paths, path)
		}
	}
	for path := range right {
		if _, both := left[path]; !both {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

// flatten returns every leaf of an object by its path; lists are leaves, and empty ones are omitted.
func flatten(object any) map[string]string {
	data, err := sigsyaml.Marshal(object)
	if err != nil {
		panic(err)
	}
	tree := map[string]any{}
	if err := sigsyaml.Unmarshal(data, &tree); err != nil {
		panic(err)
	}
	leaves := map[string]string{}
	var visit func(path string, value any)
	visit = func(path string, value any) {
		switch value := value.(type) {
		case nil:
		case []any:
			if len(value) > 0 {
				leaves[path] = fmt.Sprint(value)
			}
		case map[string]any:
			for name, v := range value {
				visit(userfile.Member(path, name), v)
			}
		default:
			leaves[path] = fmt.Sprint(value)
		}
	}
	visit("", tree)
	return leaves
}
