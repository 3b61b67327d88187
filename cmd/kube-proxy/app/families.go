package app

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/config/validation"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/node"
)

// machineFamilies are the address families that this machine can serve, by what its /proc tells.
func machineFamilies(proc fs.FS) []cluster.Family {
	families := []cluster.Family{cluster.IPv4}
	_, err := fs.Stat(proc, "net/if_inet6")
	disabled, unknown := fs.ReadFile(proc, "sys/net/ipv6/conf/all/disable_ipv6")
	if err == nil && unknown == nil && strings.TrimSpace(string(disabled)) != "1" {
		families = append(families, cluster.IPv6)
	}
	return families
}

// servedFamilies chooses among the families of a machine, the node's primary one first.
func servedFamilies(policy config.IPFamilyPolicy, primary cluster.Family, machine []cluster.Family) ([]cluster.Family, error) {
	secondary := cluster.IPv4
	if primary == cluster.IPv4 {
		secondary = cluster.IPv6
	}
	const remedy = "; set up %[1]s on this machine (for IPv6: net.ipv6.conf.all.disable_ipv6=0)"
	switch {
	case !slices.Contains(machine, primary):
		return nil, fmt.Errorf("the node's primary address is of family %[1]s, which this machine does not have"+remedy+
			", or give an address of another family with nodeIPOverride (--bind-address)", primary)
	case policy == config.IPFamilyPolicySingleStack:
		return []cluster.Family{primary}, nil
	case slices.Contains(machine, secondary):
		return []cluster.Family{primary, secondary}, nil
	case policy == config.IPFamilyPolicyRequireDualStack:
		return nil, fmt.Errorf("ipFamilyPolicy is %[2]s, and this machine does not have %[1]s"+remedy+
			", or choose %[3]s", secondary, policy, config.IPFamilyPolicyPreferDualStack)
	}
	return []cluster.Family{primary}, nil
}

// checkFamilies holds the configuration and the node's pod CIDRs against the families that are served. What is doubtful
// a user should know; what is fatal, or the error, cannot work.
func checkFamilies(cfg *config.KubeProxyConfiguration, identity node.Identity, families []cluster.Family) (doubtful, fatal field.ErrorList, err error) {
	has := func(family cluster.Family) bool { return slices.Contains(families, family) }
	fatal, doubtful = validation.CheckFamilies(cfg, validation.Families{IPv4: has(cluster.IPv4), IPv6: has(cluster.IPv6)})
	if cfg.ConfigHardFail {
		fatal, doubtful = append(fatal, doubtful...), nil
	}
	ours := func(cidr netip.Prefix) bool { return has(cluster.FamilyOf(cidr.Addr())) }
	if len(identity.PodCIDRs) > 0 && len(families) == 1 && !slices.ContainsFunc(identity.PodCIDRs, ours) {
		err = fmt.Errorf("local traffic is told by the Node's spec.podCIDRs (detectLocalMode NodeCIDR), and none of %v is of the only family that is served, %s",
			identity.PodCIDRs, families[0])
	}
	return doubtful, fatal, err
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
