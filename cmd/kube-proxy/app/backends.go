//go:build linux

package app

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/host"
	kernelipvs "github.com/seed-11a05479/kube-proxy/pkg/kernel/ipvs"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/netif"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/iptables"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/ipvs"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/nftables"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/takeover"
)

// Modes lists all modes, in the order in which their rules are removed. The proxy runs in one that is a backend.Mode; it only removes the
// rules of the others. counters are for a mode whose rules are written or shown. A new backend is a row here.
func Modes(cfg *config.KubeProxyConfiguration, counters backend.CounterLimits) []takeover.Mode {
	ipvsMode := ipvs.Mode{Objects: kernelipvs.Kernel{}, ExcludeCIDRs: cfg.IPVS.ExcludeCIDRs}
	return []takeover.Mode{
		{Name: string(config.ProxyModeIPTables), Remover: iptables.Mode{Settings: host.Kernel{},
			Options: iptables.Options{Mark: mark(cfg.IPTables.MasqueradeBit), Liberal: cfg.Linux.Conntrack.TCPBeLiberal}}},
		{Name: string(config.ProxyModeNFTables), Remover: nftables.Mode{Options: nftables.Options{Mark: mark(cfg.NFTables.MasqueradeBit), Counters: counters,
			Devices: netif.Kernel{}.Devices}}},
		{Name: string(config.ProxyModeIPVS), Remover: ipvsMode, Drain: ipvsMode.Drain}, // iptables rules use its sets
	}
}

// mark is the mark with one bit; 0 if there is no such bit, which is valid for a mode that is not used.
func mark(bit int32) uint32 {
	if bit < 0 {
		return 0
	}
	return 1 << bit
}

// Renderers are those modes whose rules can be shown, by name.
func Renderers(cfg *config.KubeProxyConfiguration, counters backend.CounterLimits) map[string]backend.Renderer {
	all := map[string]backend.Renderer{}
	for _, m := range Modes(cfg, counters) {
		if r, ok := m.Remover.(backend.Mode); ok {
			all[m.Name] = r
		}
	}
	return all
}

// ChooseMode returns the mode of the configuration and all others.
func ChooseMode(cfg *config.KubeProxyConfiguration, counters backend.CounterLimits) (chosen backend.Mode, others []takeover.Mode, err error) {
	for _, m := range Modes(cfg, counters) {
		if m.Name == string(cfg.EffectiveMode()) {
			chosen, _ = m.Remover.(backend.Mode)
		} else {
			others = append(others, m)
		}
	}
	if chosen == nil {
		return nil, nil, fmt.Errorf("mode %q has no backend here; set --proxy-mode (or mode in the configuration file) to one of %q",
			cfg.Mode, config.ServedModes())
	}
	return chosen, others, nil
}

// cleanup removes the rules of all modes. The error joins everything that could not be removed.
func cleanup(ctx context.Context, cfg *config.KubeProxyConfiguration) error {
	var failed []error
	for _, m := range Modes(cfg, backend.CounterLimits{}) {
		failed = append(failed, m.Remove(ctx))
	}
	return errors.Join(failed...)
}

// maxCounterBytes is the most memory of the counters of one family, unless --connection-counters sets what is counted.
const maxCounterBytes = 64 << 20

// limits returns the limits of the nftables mode. In iptables mode every rule counts.
func (l counterLevel) limits() backend.CounterLimits {
	for _, of := range countings() {
		if string(l) == of.String() {
			return backend.CounterLimits{Counting: of}
		}
	}
	return backend.CounterLimits{Most: nft.MaxCounters(maxCounterBytes, host.PossibleCPUs(os.DirFS("/sys")))}
}
