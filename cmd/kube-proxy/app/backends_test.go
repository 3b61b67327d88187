//go:build linux

package app

import (
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
)

// TestModes checks that every mode that the API lists as served has a backend, and that all others are removed when it runs.
func TestModes(t *testing.T) {
	for _, name := range append(config.ServedModes(), "") {
		cfg := &config.KubeProxyConfiguration{Mode: name}
		chosen, others, err := ChooseMode(cfg, backend.CounterLimits{})
		if err != nil || chosen == nil || len(others) != len(Modes(cfg, backend.CounterLimits{}))-1 {
			t.Errorf("mode %q: %v, %d others, %v", name, chosen, len(others), err)
		}
		for _, other := range others {
			if other.Name == string(cfg.EffectiveMode()) {
				t.Errorf("mode %q would remove its own rules", name)
			}
		}
	}
	unused := &config.KubeProxyConfiguration{Mode: config.ProxyModeIPTables}
	unused.NFTables.MasqueradeBit = -1 // which validation accepts in another mode
	if _, _, err := ChooseMode(unused, backend.CounterLimits{}); err != nil {
		t.Error(err)
	}
	if _, _, err := ChooseMode(&config.KubeProxyConfiguration{Mode: config.ProxyModeIPVS}, backend.CounterLimits{}); err == nil || !strings.Contains(err.Error(), `["iptables" "nftables"]`) {
		t.Errorf("ipvs: %v, want an error that lists the modes with a backend", err)
	}
}
