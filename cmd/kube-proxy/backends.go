//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/nftables"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// dataplane is a backend that a user may choose.
type dataplane struct {
	mode config.ProxyMode
	// nodePorts selects the node ports' addresses where the configuration names none.
	nodePorts string
	// syncFailures and cleanupFailures name the metrics, below kubeproxy_, that count its failures.
	syncFailures, cleanupFailures string
	open                          func(cfg *config.KubeProxyConfiguration, families []cluster.Family) (backend.Backend, error)
}

// dataplanes are all there are. A new backend is a row here.
var dataplanes = []dataplane{
	{
		mode: config.ProxyModeNFTables, nodePorts: config.NodePortAddressesPrimary, open: openNFTables,
		syncFailures:    "sync_proxy_rules_nftables_sync_failures_total",
		cleanupFailures: "sync_proxy_rules_nftables_cleanup_failures_total",
	},
}

// chooseDataplane finds the one that the configuration names. Where it names none it is nftables, since this
// proxy has no iptables backend to default to as Kubernetes' does.
func chooseDataplane(mode config.ProxyMode) (dataplane, error) {
	if mode == "" {
		mode = config.ProxyModeNFTables
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

func openNFTables(cfg *config.KubeProxyConfiguration, families []cluster.Family) (backend.Backend, error) {
	return nftables.Open(nftables.Options{Mark: 1 << cfg.NFTables.MasqueradeBit}, families...)
}

// cleanup removes what any backend left on this machine, and tells everything that could not be removed.
func cleanup(ctx context.Context, cfg *config.KubeProxyConfiguration) error {
	var failed []error
	for _, d := range dataplanes {
		b, err := d.open(cfg, []cluster.Family{cluster.IPv4, cluster.IPv6})
		if err == nil {
			err = errors.Join(b.Cleanup(ctx), b.Close())
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}
