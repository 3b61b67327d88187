//go:build linux

package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/check"
	checkapi "github.com/seed-11a05479/kube-proxy/pkg/check/api"
	checkmachine "github.com/seed-11a05479/kube-proxy/pkg/check/machine"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/netif"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/netlock"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/scratch"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/sysctl"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/node"
)

// openDoors returns what a configuration says about this node, and the doors of the checks. Nothing is opened yet.
func openDoors(l *loaded, withoutAPI bool) (check.Node, *check.Doors, error) {
	cfg := l.cfg
	chosen, _, err := chooseMode(cfg, backend.CounterLimits{})
	if err != nil {
		return check.Node{}, nil, err
	}
	name, err := nodeName(cfg.HostnameOverride, os.Hostname)
	if err != nil {
		return check.Node{}, nil, err
	}
	given, err := cluster.ParseAddrs(cfg.NodeIPOverride)
	if err != nil {
		return check.Node{}, nil, fmt.Errorf("nodeIPOverride: %w", err)
	}
	families, err := node.Families(netif.HasIPv6(os.DirFS("/proc")), familyPolicy(cfg), given)
	if err != nil {
		return check.Node{}, nil, err
	}
	planning, err := planOptions(cfg, l.features.Gates)
	if err != nil {
		return check.Node{}, nil, err
	}
	checked := check.Node{
		Name: name, Mode: string(cfg.EffectiveMode()), Families: families, MetricsAddress: cfg.MetricsBindAddress, HealthzAddress: cfg.HealthzBindAddress,
		LocalhostNodePorts: planning.NodePorts.Loopback && len(planning.ServedOnLoopback(cluster.IPv4)) > 0,
	}
	doors := &check.Doors{
		Setting:    sysctl.Kernel{}.Read,
		Rules:      func(ctx context.Context) ([]check.Step, error) { return rehearseRules(ctx, checked, chosen) },
		Tools:      func(ctx context.Context) []backend.Tool { return chosen.Tools(ctx, families...) },
		Variants:   checkmachine.Variants,
		Chains:     checkmachine.Chains,
		Holder:     checkmachine.Holder,
		Present:    func(ctx context.Context) ([]string, error) { return presentModes(ctx, cfg) },
		Processes:  func() ([]int, error) { return netlock.Processes("kube-proxy") },
		Listen:     checkmachine.Listen,
		Get:        checkmachine.Get,
		Interfaces: netif.New().Addrs,
	}
	if !withoutAPI {
		doors.API, err = checkedAPI(cfg)
	}
	if errors.Is(err, errNoServer) {
		err = nil // which the group api says
	}
	return checked, doors, err
}

func checkedAPI(cfg *config.KubeProxyConfiguration) (check.API, error) {
	client, err := clientConfig(cfg, "")
	if err != nil {
		return nil, fmt.Errorf("%w, or --skip api", err)
	}
	return checkapi.New(client)
}

// rehearseRules runs "kube-proxy check rehearse" in a network namespace of its own.
func rehearseRules(ctx context.Context, node check.Node, prober backend.Prober) ([]check.Step, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	own, err := scratch.Own()
	if err != nil {
		return nil, err
	}
	args := []string{"check", "rehearse", "--outside", string(own), "--proxy-mode", node.Mode}
	for _, family := range node.Families {
		args = append(args, "--family", family.String())
	}
	variant, err := prober.Variant(ctx)
	if err != nil {
		return nil, err
	}
	args = append(args, "--variant", variant)
	var stdout, stderr bytes.Buffer
	command := scratch.Command(ctx, program, args...)
	command.Stdout, command.Stderr = &stdout, &stderr
	switch err := command.Run(); {
	case scratch.Refused(err):
		return nil, fmt.Errorf("make a network namespace: %w: CAP_SYS_ADMIN is missing", err)
	case err != nil:
		return nil, fmt.Errorf("%w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	var steps []check.Step
	return steps, json.Unmarshal(stdout.Bytes(), &steps)
}

func presentModes(ctx context.Context, cfg *config.KubeProxyConfiguration) ([]string, error) {
	var present []string
	var failed []error
	for _, m := range modes(cfg, backend.CounterLimits{}) {
		there, err := m.Present(ctx)
		if failed = append(failed, err); there {
			present = append(present, string(m.name))
		}
	}
	return present, errors.Join(failed...)
}
