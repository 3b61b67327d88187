package features

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-base/featuregate"
	zpagesfeatures "k8s.io/component-base/zpages/features"
)

// TestDefaults checks the defaults.
func TestDefaults(t *testing.T) {
	got := Read(nil)
	var on []string
	for _, gate := range Describe() {
		if got.Gate.Enabled(featuregate.Feature(gate.Name)) {
			on = append(on, gate.Name)
		}
	}
	want := []string{"ComponentFlagz", "ComponentStatusz", "ContextualLogging", "DisableNodeKubeProxyVersion", "LoggingBetaOptions", "NativeHistograms"}
	if !slices.Equal(on, want) || len(got.Warnings)+len(got.Errors) > 0 {
		t.Errorf("on are %q, want %q; warnings %q, errors %v", on, want, got.Warnings, got.Errors)
	}
}

// TestRead checks each kind of name.
func TestRead(t *testing.T) {
	got := Read(map[string]bool{
		"AllowServiceExternalIPs":     true,  // deprecated, not at its default
		"DisableNodeKubeProxyVersion": true,  // deprecated, at its default
		"KubeletPodResources":         true,  // another component's
		"IPv6DualStack":               true,  // removed in 1.25
		"AllAlpha":                    true,  // sets the alpha gates
		"ComponentFlagz":              false, // a gate of this proxy
		"NoSuchGate":                  true,
		"ALLALPHA":                    true,
	})
	on := got.Gate.Enabled
	if !on(AllowServiceExternalIPs) || !on(KubeProxyNFTablesLocalhostNodePorts) || on(zpagesfeatures.ComponentFlagz) || !on(zpagesfeatures.ComponentStatusz) {
		t.Errorf("gates are %s", got.InForce())
	}
	if len(got.Warnings) != 3 || !strings.Contains(strings.Join(got.Warnings, "\n"), "AllowServiceExternalIPs is deprecated") ||
		!strings.Contains(strings.Join(got.Warnings, "\n"), "IPv6DualStack has no effect") {
		t.Errorf("warnings are %q", got.Warnings)
	}
	if len(got.Errors) != 2 || got.Errors["NoSuchGate"] == nil || !strings.Contains(got.Errors["ALLALPHA"].Error(), "did you mean AllAlpha?") {
		t.Errorf("errors are %v", got.Errors)
	}
}

// TestKubernetesGates checks that the list is sorted, and contains the gates of all versions of kube-proxy.
func TestKubernetesGates(t *testing.T) {
	names := strings.Fields(kubernetesGates)
	if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Error("the list is not sorted, or has a duplicate")
	}
	for _, name := range []string{"KubeProxyIPVS", "NFTablesNetlink", "NFTablesProxyMode", "LoadBalancerIPMode", "ServiceTrafficDistribution", "TopologyAwareHints",
		"KubeProxyDrainingTerminatingNodes", "WinDSR", "WinOverlay", "PreferSameTrafficDistribution", "MultiCIDRServiceAllocator", "WatchListClient",
		"EndpointSliceProxying", "ServiceInternalTrafficPolicy", "ProxyTerminatingEndpoints", "MinimizeIPTablesRestore"} {
		if !knownToKubernetes(name) {
			t.Errorf("%s is missing", name)
		}
	}
}

// TestTableIsComplete checks that every gate has a row, and every row a gate, so that the reference, --help and /flagz are
// complete.
func TestTableIsComplete(t *testing.T) {
	var described, rows []string
	effects := map[string]string{}
	for _, r := range table() {
		rows = append(rows, string(r.name))
		effects[string(r.name)] = r.effect + r.end
	}
	for _, gate := range Describe() {
		described = append(described, gate.Name)
		if gate.Effect == "" || gate.Stage == "" || gate.End == "" || gate.Effect+gate.End != effects[gate.Name] {
			t.Errorf("gate %s is incomplete, or has the effect or end of another one: %+v", gate.Name, gate)
		}
	}
	if !slices.Equal(described, rows) {
		t.Errorf("the table has the rows\n%v\nand component-base and this proxy have the gates\n%v", rows, described)
	}
}

// TestDescription checks the line of a gate in --help, for each stage of the gates there are.
func TestDescription(t *testing.T) {
	want := map[string]bool{"AllAlpha=true|false (alpha, default false)": false, "ComponentFlagz=true|false (beta, default true)": false,
		"AllowServiceExternalIPs=true|false (deprecated, default false)": false}
	for _, gate := range Describe() {
		if _, ok := want[gate.String()]; ok {
			want[gate.String()] = true
		}
	}
	for line, found := range want {
		if !found {
			t.Errorf("no gate is described as %q", line)
		}
	}
}

// TestInForce checks that InForce returns the values in the format of the flag.
func TestInForce(t *testing.T) {
	read := Read(map[string]bool{"AllowServiceExternalIPs": true, "AllAlpha": true, "KubeletPodResources": true})
	shown := read.InForce()
	again := map[string]bool{}
	for pair := range strings.SplitSeq(shown, ",") {
		name, value, _ := strings.Cut(pair, "=")
		again[name] = value == "true"
	}
	if len(again) != len(Describe()) || !again["AllowServiceExternalIPs"] || !again["KubeProxyNFTablesLocalhostNodePorts"] || again["LoggingAlphaOptions"] != true {
		t.Errorf("InForce returned %s", shown)
	}
	if got := Read(again); got.InForce() != shown || len(got.Errors) > 0 {
		t.Errorf("read again, %s gives %s and %v", shown, got.InForce(), got.Errors)
	}
}

// TestBadNames checks the errors of misspelled names and locked gates.
func TestBadNames(t *testing.T) {
	for name, want := range map[string]string{
		"allowserviceexternalips":  "did you mean AllowServiceExternalIPs?",
		"AllowServiceExternalIP":   "did you mean AllowServiceExternalIPs?",
		"DisableNodeKubproxyVers":  "unknown feature gate of this proxy and of Kubernetes",
		"Compone":                  "unknown feature gate of this proxy and of Kubernetes", // half of ComponentFlagz is too little
		"Componen":                 "did you mean ComponentFlagz?",
		"DisableNodeKubeProxyVers": "did you mean DisableNodeKubeProxyVersion?",
	} {
		err := Read(map[string]bool{name: true}).Errors[name]
		if err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v, want %q at the end", name, err, want)
		}
	}
	locked := featuregate.VersionedSpecs{{Version: version.MajorMinor(1, 0), Default: true, PreRelease: featuregate.GA, LockToDefault: true}}
	gate := newGate()
	if err := gate.AddVersioned(map[featuregate.Feature]featuregate.VersionedSpecs{"Settled": locked}); err != nil {
		t.Fatal(err)
	}
	if got := readInto(gate, map[string]bool{"Settled": false}); got.Errors["Settled"] == nil || !strings.Contains(got.Errors["Settled"].Error(), "locked to true") {
		t.Errorf("a locked gate: %v", got.Errors)
	}
	if got := readInto(gate, map[string]bool{"Settled": true}); len(got.Errors) > 0 {
		t.Errorf("a locked gate at its default: %v", got.Errors)
	}
}
