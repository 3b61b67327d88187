//go:build linux

package app

import (
	"errors"
	"fmt"
	"os"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/check"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/netif"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/node"
)

// newChecker returns a Checker of this node, as a configuration describes it. Nothing is opened yet.
func newChecker(l *loaded, withoutAPI bool) (*check.Checker, error) {
	cfg := l.cfg
	chosen, _, err := chooseMode(cfg, backend.CounterLimits{})
	if err != nil {
		return nil, err
	}
	name, err := nodeName(cfg.HostnameOverride, os.Hostname)
	if err != nil {
		return nil, err
	}
	given, err := cluster.ParseAddrs(cfg.NodeIPOverride)
	if err != nil {
		return nil, fmt.Errorf("nodeIPOverride: %w", err)
	}
	families, err := node.Families(netif.HasIPv6(os.DirFS("/proc")), familyPolicy(cfg), given)
	if err != nil {
		return nil, err
	}
	planning, err := planOptions(cfg, l.features.Gates)
	if err != nil {
		return nil, err
	}
	host := &check.Linux{Mode: chosen, ModeName: string(cfg.EffectiveMode()), Families: families, Modes: map[string]backend.Remover{}}
	for _, m := range modes(cfg, backend.CounterLimits{}) {
		host.Modes[string(m.name)] = m.Remover
	}
	checker := &check.Checker{Host: host, Node: check.Node{
		Name: name, Mode: host.ModeName, Families: families, MetricsAddress: cfg.MetricsBindAddress, HealthzAddress: cfg.HealthzBindAddress,
		LocalhostNodePorts: planning.NodePorts.Loopback && len(planning.ServedOnLoopback(cluster.IPv4)) > 0,
	}}
	if withoutAPI {
		return checker, nil
	}
	checker.API, err = checkedAPI(cfg)
	return checker, err
}

// checkedAPI returns the configured API server; nil if there is none, which the group api says.
func checkedAPI(cfg *config.KubeProxyConfiguration) (check.API, error) {
	client, err := clientConfig(cfg, "")
	switch {
	case errors.Is(err, errNoServer):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%w, or --skip api", err)
	}
	return check.NewAPI(client)
}
