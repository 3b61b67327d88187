//go:build linux

package app

import (
	"errors"
	"fmt"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/check"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// newChecker returns a Checker of this node, as a configuration describes it. Nothing is opened yet.
func newChecker(l *loaded, withoutAPI bool) (*check.Checker, error) {
	cfg := l.cfg
	chosen, _, err := chooseMode(cfg, backend.CounterLimits{})
	if err != nil {
		return nil, err
	}
	n, err := newThisNode(cfg, l.features.Gates, cfg.HostnameOverride, machineHasIPv6())
	if err != nil {
		return nil, err
	}
	host := &check.Linux{Mode: chosen, ModeName: string(cfg.EffectiveMode()), Families: n.wanted, Modes: map[string]backend.Remover{}}
	for _, m := range modes(cfg, backend.CounterLimits{}) {
		host.Modes[string(m.name)] = m.Remover
	}
	checker := &check.Checker{Host: host, Node: check.Node{
		Name: n.name, Mode: host.ModeName, Families: n.wanted, MetricsAddress: cfg.MetricsBindAddress, HealthzAddress: cfg.HealthzBindAddress,
		LocalhostNodePorts: n.planning.NodePorts.Loopback && len(n.planning.ServedOnLoopback(cluster.IPv4)) > 0,
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
