package features

import (
	"slices"
	"strings"
	"testing"
)

// TestDefaults proves the defaults that operators rely on.
func TestDefaults(t *testing.T) {
	got := Read(nil)
	want := Gates{DisableNodeKubeProxyVersion: true, ComponentStatusz: true, ComponentFlagz: true, NativeHistograms: true, ContextualLogging: true}
	if got.Gates != want || len(got.Warnings)+len(got.Errors) > 0 {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestRead proves what becomes of each kind of name.
func TestRead(t *testing.T) {
	got := Read(map[string]bool{
		"AllowServiceExternalIPs":     true,  // deprecated, away from its default
		"DisableNodeKubeProxyVersion": true,  // deprecated, at its default
		"KubeletPodResources":         true,  // another component's
		"IPv6DualStack":               true,  // gone since 1.25
		"AllAlpha":                    true,  // sets the alpha gates
		"ComponentFlagz":              false, // ours, plain
		"NoSuchGate":                  true,
		"ALLALPHA":                    true,
	})
	gates := got.Gates
	if !gates.AllowServiceExternalIPs || !gates.KubeProxyNFTablesLocalhostNodePorts || gates.ComponentFlagz || !gates.ComponentStatusz {
		t.Errorf("gates are %+v", gates)
	}
	if len(got.Warnings) != 3 || !strings.Contains(strings.Join(got.Warnings, "\n"), "AllowServiceExternalIPs is deprecated") ||
		!strings.Contains(strings.Join(got.Warnings, "\n"), "IPv6DualStack has no effect") {
		t.Errorf("warnings are %q", got.Warnings)
	}
	if len(got.Errors) != 2 || got.Errors["NoSuchGate"] == nil || !strings.Contains(got.Errors["ALLALPHA"].Error(), "did you mean AllAlpha?") {
		t.Errorf("errors are %v", got.Errors)
	}
}

// TestKubernetesGates proves that the list can be searched, and holds the names that kube-proxy has ever had.
func TestKubernetesGates(t *testing.T) {
	names := strings.Fields(kubernetesGates)
	if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Error("the list is not sorted, or has a name twice")
	}
	for _, name := range []string{"KubeProxyIPVS", "NFTablesNetlink", "NFTablesProxyMode", "LoadBalancerIPMode", "ServiceTrafficDistribution", "TopologyAwareHints",
		"KubeProxyDrainingTerminatingNodes", "WinDSR", "WinOverlay", "PreferSameTrafficDistribution", "MultiCIDRServiceAllocator", "WatchListClient",
		"EndpointSliceProxying", "ServiceInternalTrafficPolicy", "ProxyTerminatingEndpoints", "MinimizeIPTablesRestore"} {
		if !KnownToKubernetes(name) {
			t.Errorf("%s is missing", name)
		}
	}
}

// TestEveryGateIsDescribed proves that the reference leaves nothing out.
func TestEveryGateIsDescribed(t *testing.T) {
	for _, gate := range Describe() {
		if gate.Effect == "" || gate.Stage == "" {
			t.Errorf("gate %s has no description", gate.Name)
		}
	}
}
