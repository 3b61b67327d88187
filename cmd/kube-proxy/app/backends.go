//go:build linux

package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipvs"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/netlock"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/sysctl"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/iptables"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/nftables"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/leftovers"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/metrics"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/rivals"
)

// dataplane is a backend that a user may choose.
type dataplane struct {
	mode config.ProxyMode
	// nodePorts selects the node ports' addresses where the configuration names none.
	nodePorts string
	// names are those of the metrics that it alone has.
	names metrics.Names
	open  func(ctx context.Context, cfg *config.KubeProxyConfiguration, families []cluster.Family) (backend.Backend, error)
	// prepare does what takes a privileged process, beside the settings of connection tracking; nil is nothing.
	prepare func(ctx context.Context, cfg *config.KubeProxyConfiguration, planning *plan.Options) error
	// rejectedOnLocalhost reads how many packets to node ports it rejected on loopback addresses; nil where it serves
	// these itself, and rejects none.
	rejectedOnLocalhost func(ctx context.Context, family cluster.Family) (map[cluster.Protocol]uint64, error)
	// present reports whether there are rules of this mode, by whatever program.
	present func(ctx context.Context) (bool, error)
	// cleanup removes all that it, or Kubernetes' kube-proxy in this mode, left on this machine.
	cleanup func(ctx context.Context, cfg *config.KubeProxyConfiguration) error
}

// dataplanes are all there are. A new backend is a row here. The first is the default.
var dataplanes = []dataplane{
	{
		mode: config.ProxyModeIPTables, nodePorts: config.NodePortAddressesAll,
		names: metrics.Names{
			SyncFailures:        "sync_proxy_rules_iptables_restore_failures_total",
			PartialSyncFailures: "sync_proxy_rules_iptables_partial_restore_failures_total",
			TableRules:          "sync_proxy_rules_iptables_total",
			TableRulesWritten:   "sync_proxy_rules_iptables_last",
			InvalidDropped:      "iptables_ct_state_invalid_dropped_packets_total",
			LocalhostAccepted:   "iptables_localhost_nodeports_accepted_packets_total",
		},
		open: func(ctx context.Context, cfg *config.KubeProxyConfiguration, families []cluster.Family) (backend.Backend, error) {
			return iptables.Open(ctx, iptablesOptions(cfg), sysctl.Kernel{}, families...)
		},
		prepare: func(ctx context.Context, cfg *config.KubeProxyConfiguration, planning *plan.Options) error {
			return iptables.Prepare(ctx, iptablesOptions(cfg), sysctl.Kernel{}, planning)
		},
		present: iptables.Present,
		cleanup: func(ctx context.Context, cfg *config.KubeProxyConfiguration) error {
			return iptables.CleanupAll(ctx, iptablesOptions(cfg), sysctl.Kernel{})
		},
	},
	{
		mode: config.ProxyModeNFTables, nodePorts: config.NodePortAddressesPrimary,
		names: metrics.Names{
			SyncFailures:    "sync_proxy_rules_nftables_sync_failures_total",
			CleanupFailures: "sync_proxy_rules_nftables_cleanup_failures_total",
		},
		open: func(_ context.Context, cfg *config.KubeProxyConfiguration, families []cluster.Family) (backend.Backend, error) {
			return nftables.Open(nftables.Options{Mark: 1 << cfg.NFTables.MasqueradeBit}, families...)
		},
		rejectedOnLocalhost: nftables.RejectedOnLocalhost,
		present:             nftables.Present,
		cleanup: func(ctx context.Context, _ *config.KubeProxyConfiguration) error {
			return nftables.CleanupAll(ctx)
		},
	},
}

func iptablesOptions(cfg *config.KubeProxyConfiguration) iptables.Options {
	return iptables.Options{Mark: 1 << cfg.IPTables.MasqueradeBit}
}

// chooseDataplane finds the one that the configuration names.
func chooseDataplane(mode config.ProxyMode) (dataplane, error) {
	if mode == "" {
		return dataplanes[0], nil
	}
	var names []string
	for _, d := range dataplanes {
		if d.mode == mode {
			return d, nil
		}
		names = append(names, string(d.mode))
	}
	return dataplane{}, fmt.Errorf("mode %q has no backend here; set --proxy-mode (or mode in the configuration file) to %s",
		mode, strings.Join(names, " or "))
}

// cleanup removes what any dataplane left on this machine, and tells everything that could not be removed.
func cleanup(ctx context.Context, cfg *config.KubeProxyConfiguration) error {
	var failed []error
	for _, d := range dataplanes {
		failed = append(failed, d.cleanup(ctx, cfg))
	}
	return errors.Join(append(failed, cleanupIPVS(ctx, cfg))...)
}

// cleanupIPVS removes what ipvs mode left, after all rules that use it.
func cleanupIPVS(ctx context.Context, cfg *config.KubeProxyConfiguration) error {
	excluded, err := parseCIDRs(cfg.IPVS.ExcludeCIDRs)
	if err != nil {
		return fmt.Errorf("ipvs.excludeCIDRs: %w", err)
	}
	return leftovers.Cleanup(ctx, ipvs.Kernel{}, excluded)
}

// succeed removes the rules of the other dataplanes, once those of the chosen one are in force: new connections always
// meet one or the other. What cannot be removed is told and left: it does no harm but the time that a packet takes to
// pass it.
func succeed(ctx context.Context, cfg *config.KubeProxyConfiguration, chosen config.ProxyMode) {
	for _, d := range dataplanes {
		if d.mode == chosen {
			continue
		}
		if err := d.cleanup(ctx, cfg); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot remove the rules of another mode; kube-proxy --cleanup removes those of all", "mode", d.mode)
		}
	}
	if err := cleanupIPVS(ctx, cfg); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot remove what ipvs mode left; end this proxy and run kube-proxy --cleanup, or restart the node")
	}
}

// rivals looks for another kube-proxy that takes no lock. seen is called with the mode of each.
func (p *process) rivals(ctx context.Context, seen func(mode string, at time.Time)) *rivals.Watch {
	others := []rivals.Mode{{
		Name: string(config.ProxyModeIPVS), Present: func(context.Context) (bool, error) { return leftovers.Present(ipvs.Kernel{}) },
	}}
	for _, d := range dataplanes {
		if d.mode != p.chosen.mode {
			others = append(others, rivals.Mode{Name: string(d.mode), Present: d.present})
		}
	}
	return rivals.New(rivals.Config{
		Mode: string(p.chosen.mode), Others: others, Seen: seen,
		Processes: func() ([]int, error) { return netlock.Processes("kube-proxy") },
		Clock:     clock.RealClock{}, Logger: klog.FromContext(ctx),
	})
}
