package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"

	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/config/validation"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/netif"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/node"
)

// machineFamilies are the address families that this machine can serve. proc is its /proc.
func machineFamilies(proc fs.FS) []cluster.Family {
	if netif.HasIPv6(proc) {
		return []cluster.Family{cluster.IPv4, cluster.IPv6}
	}
	return []cluster.Family{cluster.IPv4}
}

// familyPolicy is how many families the configuration wants.
func familyPolicy(cfg *config.KubeProxyConfiguration) node.FamilyPolicy {
	switch cfg.IPFamilyPolicy {
	case config.IPFamilyPolicyRequireDualStack:
		return node.RequireDualStack
	case config.IPFamilyPolicySingleStack:
		return node.SingleStack
	default:
		return node.PreferDualStack
	}
}

// checkFamilies compares the configuration with the families that are served. What cannot work is an error; what may not be
// intended is one with configHardFail, and a warning without.
func checkFamilies(ctx context.Context, cfg *config.KubeProxyConfiguration, opts runOptions, families []cluster.Family) error {
	fatal, doubtful := validation.CheckFamilies(cfg, validation.Families{
		IPv4: slices.Contains(families, cluster.IPv4), IPv6: slices.Contains(families, cluster.IPv6),
	})
	if cfg.ConfigHardFail {
		fatal, doubtful = append(fatal, doubtful...), nil
	}
	if err := opts.check(fatal); err != nil {
		return err
	}
	if err := opts.check(doubtful); err != nil {
		klog.FromContext(ctx).Info("The configuration does not fit the address families of this machine; set configHardFail to make this fatal", "warning", err.Error())
	}
	return nil
}

// nodeIPOverride are the addresses that the user believes in place of the Node's.
func nodeIPOverride(cfg *config.KubeProxyConfiguration) ([]netip.Addr, error) {
	var addrs []netip.Addr
	var failed []error
	for _, text := range cfg.NodeIPOverride {
		addr, err := cluster.ParseAddr(text)
		if err != nil {
			failed = append(failed, fmt.Errorf("nodeIPOverride: %w", err))
			continue
		}
		addrs = append(addrs, addr)
	}
	return addrs, errors.Join(failed...)
}
