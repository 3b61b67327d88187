//go:build linux

package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/seed-11a05479/kube-proxy/cmd/kube-proxy/app"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/check"
	"github.com/seed-11a05479/kube-proxy/pkg/inspect"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// newChecker returns a Checker of this node, as a configuration describes it. Nothing is opened yet.
func newChecker(l *app.Loaded, withoutAPI bool) (*check.Checker, error) {
	cfg := l.Config
	chosen, _, err := app.ChooseMode(cfg, backend.CounterLimits{})
	if err != nil {
		return nil, err
	}
	n, err := app.NewThisNode(cfg, l.Features.Gate, cfg.HostnameOverride, app.MachineHasIPv6())
	if err != nil {
		return nil, err
	}
	host := &check.Linux{Mode: chosen, ModeName: string(cfg.EffectiveMode()), Families: n.Wanted, Modes: removers(cfg)}
	checker := &check.Checker{Host: host, Node: check.Node{
		Name: n.Name, Mode: host.ModeName, Families: n.Wanted, MetricsAddress: cfg.MetricsBindAddress, HealthzAddress: cfg.HealthzBindAddress,
		LocalhostNodePorts: n.Planning.NodePorts.Loopback && len(n.Planning.ServedOnLoopback(cluster.IPv4)) > 0,
	}}
	if withoutAPI {
		return checker, nil
	}
	checker.API, err = checkedAPI(cfg)
	return checker, err
}

// modeHere returns the mode that has rules here; "" if none has, or several have.
func modeHere(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, inspect.DefaultTimeout) // a busy kernel is one of the checks, too
	defer cancel()
	host := &check.Linux{Modes: removers(app.DefaultConfig())}
	maps.DeleteFunc(host.Modes, func(_ string, r backend.Remover) bool { _, served := r.(backend.Mode); return !served })
	present, _ := host.Present(ctx) // an error is one of the checks
	if len(present) != 1 {
		return ""
	}
	return present[0]
}

// removers returns all modes by name.
func removers(cfg *config.KubeProxyConfiguration) map[string]backend.Remover {
	all := map[string]backend.Remover{}
	for _, m := range app.Modes(cfg, backend.CounterLimits{}) {
		all[m.Name] = m.Remover
	}
	return all
}

// checkedAPI returns the configured API server; nil if there is none, which the group api says.
func checkedAPI(cfg *config.KubeProxyConfiguration) (check.API, error) {
	client, err := app.ClientConfig(cfg, "")
	switch {
	case errors.Is(err, app.ErrNoServer):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%w, or --skip api", err)
	}
	return check.NewAPI(client)
}
