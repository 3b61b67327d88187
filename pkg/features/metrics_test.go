package features

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/component-base/metrics/legacyregistry"
)

// TestAddMetrics checks the metric of each gate, which has kube-proxy's names and labels.
func TestAddMetrics(t *testing.T) {
	read := Read(map[string]bool{"AllowServiceExternalIPs": true, "ComponentFlagz": false})
	read.Gate.AddMetrics()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "kubernetes_feature_enabled" {
			continue
		}
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			got[labels["name"]+" "+labels["stage"]] = metric.GetGauge().GetValue()
		}
	}
	for gate, want := range map[string]float64{
		"AllowServiceExternalIPs DEPRECATED": 1, "ComponentFlagz BETA": 0, "ContextualLogging BETA": 1,
		"KubeProxyNFTablesLocalhostNodePorts ALPHA": 0, "AllAlpha ALPHA": 0,
	} {
		if value, ok := got[gate]; !ok || value != want {
			t.Errorf("%s is %v (exists: %v), want %v", gate, value, ok, want)
		}
	}
	for gate := range newGate().GetAll() {
		published := func(key string) bool { return strings.HasPrefix(key, string(gate)+" ") }
		if !slices.ContainsFunc(slices.Collect(maps.Keys(got)), published) {
			t.Errorf("%s is not published", gate)
		}
	}
}
