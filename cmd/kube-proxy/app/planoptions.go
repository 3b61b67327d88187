package app

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/features"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// planOptions turns a valid configuration into what the plan wants to know. nodePorts is the keyword that holds
// where the configuration selects no addresses for node ports.
func planOptions(cfg *config.KubeProxyConfiguration, gates features.Gates, nodePorts string) (*plan.Options, error) {
	o := &plan.Options{
		MasqueradeAll:    cfg.Linux.MasqueradeAll,
		ServeExternalIPs: gates.AllowServiceExternalIPs,
		SingleStack:      cfg.IPFamilyPolicy == config.IPFamilyPolicySingleStack,
	}
	switch cfg.DetectLocalMode {
	case config.LocalModeNodeCIDR:
		o.NodeCIDR = true
	case config.LocalModeBridgeInterface:
		o.LocalTraffic.Interface = cfg.DetectLocal.BridgeInterface
	case config.LocalModeInterfaceNamePrefix:
		o.LocalTraffic.Interface = cfg.DetectLocal.InterfaceNamePrefix + "*"
	default:
		cidrs, err := parseCIDRs(cfg.DetectLocal.ClusterCIDRs)
		if err != nil {
			return nil, fmt.Errorf("detectLocal.clusterCIDRs: %w", err)
		}
		o.LocalTraffic.CIDRs = cidrs
	}
	selected := cfg.NodePortAddresses
	if len(selected) == 0 {
		selected = []string{nodePorts}
	}
	var err error
	if o.NodePorts, err = nodePortAddresses(selected); err != nil {
		return nil, fmt.Errorf("nodePortAddresses: %w", err)
	}
	return o, nil
}

// loopbacks are what the keyword localhost stands for.
var loopbacks = []string{"127.0.0.0/8", "::1/128"}

// loopbackFamilies are those whose loopback address a valid list of node port addresses names: by the keyword, or by a
// range of loopback addresses that holds it. A range that is for all addresses names none.
func loopbackFamilies(entries []string) []cluster.Family {
	var families []cluster.Family
	for _, family := range []cluster.Family{cluster.IPv4, cluster.IPv6} {
		if slices.ContainsFunc(entries, func(entry string) bool { return namesLoopback(entry, family) }) {
			families = append(families, family)
		}
	}
	return families
}

func namesLoopback(entry string, family cluster.Family) bool {
	if entry == config.NodePortAddressesLocalhost {
		return true
	}
	cidrs, err := parseCIDRs([]string{entry})
	if err != nil { // another keyword
		return false
	}
	whole, address := netip.MustParsePrefix(loopbacks[0]), netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if family == cluster.IPv6 {
		whole, address = netip.MustParsePrefix(loopbacks[1]), netip.IPv6Loopback()
	}
	return cidrs[0].Contains(address) && cidrs[0].Bits() >= whole.Bits()
}

// nodePortAddresses reads CIDRs and keywords.
func nodePortAddresses(entries []string) (plan.NodePortAddresses, error) {
	var selection plan.NodePortAddresses
	var cidrs []string
	for _, entry := range entries {
		switch entry {
		case config.NodePortAddressesPrimary:
			selection.Primary = true
		case config.NodePortAddressesLocalhost:
			cidrs = append(cidrs, loopbacks...)
		case config.NodePortAddressesAll:
			cidrs = append(cidrs, "0.0.0.0/0", "::/0")
		default:
			cidrs = append(cidrs, entry)
		}
	}
	var err error
	selection.CIDRs, err = parseCIDRs(cidrs)
	return selection, err
}

// parseCIDRs reads CIDRs as validation does.
func parseCIDRs(texts []string) ([]netip.Prefix, error) {
	var cidrs []netip.Prefix
	for _, text := range texts {
		cidr, err := cluster.ParsePrefix(text)
		if err != nil {
			return nil, err
		}
		cidrs = append(cidrs, cidr)
	}
	return cidrs, nil
}
