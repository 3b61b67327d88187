//nolint:staticcheck // the field is deprecated
package manifests

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestKubeProxyVersion checks the field with the feature gate DisableNodeKubeProxyVersion, and without it.
//
//nolint:staticcheck // the field is deprecated
func TestKubeProxyVersion(t *testing.T) {
	for _, test := range []struct {
		name            string
		before, kubelet string
		report          bool
		want            string
	}{
		{"left unset", "", "v1.37.2", false, ""},
		{"cleared", "v1.36.0", "v1.37.2", false, ""},
		{"off: set", "", "v1.37.2", true, "v1.37.2"},
		{"off: corrected", "v1.36.0", "v1.37.2", true, "v1.37.2"},
		{"off, without a kubelet", "v1.36.0", "", true, ""},
	} {
		node := &corev1.Node{Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeProxyVersion: test.before, KubeletVersion: test.kubelet}}}
		setKubeProxyVersion(node, test.report)
		if got := node.Status.NodeInfo; got.KubeProxyVersion != test.want || got.KubeletVersion != test.kubelet {
			t.Errorf("%s: kubeProxyVersion %q, kubeletVersion %q; want %q, %q", test.name, got.KubeProxyVersion, got.KubeletVersion, test.want, test.kubelet)
		}
	}
}

// TestMachineNodeHasNoProxyVersion checks that the Node made from the machine has no version in either case: it has no kubelet.
//
//nolint:staticcheck // the field is deprecated
func TestMachineNodeHasNoProxyVersion(t *testing.T) {
	for _, report := range []bool{false, true} {
		s := New(t.TempDir(), "n", Options{KubeProxyVersion: report,
			Addrs: func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("192.0.2.1")}, nil }})
		if err := s.makeNode(); err != nil {
			t.Fatal(err)
		}
		if info := s.machineNode.Status.NodeInfo; info.KubeProxyVersion != info.KubeletVersion || info.KubeProxyVersion != "" {
			t.Errorf("report %t: %+v", report, info)
		}
	}
}
