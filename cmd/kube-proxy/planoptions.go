package main

import (
	"fmt"
	"net/netip"

	netutils "k8s.io/utils/net"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/features"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// planOptions turns a valid configuration into what the plan wants to know. nodePorts is the keyword that holds
// where the configuration selects no addresses for node ports.
func planOptions(cfg *config.KubeProxyConfiguration, gates features.Gates, nodePorts string) (*plan.Options, error) {
	o := &plan.Options{
		MasqueradeAll:    cfg.Linux.MasqueradeAll,
		ServeExternalIPs: gates.AllowServiceExternalIPs,
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

// parseCIDRs reads CIDRs as validation does, which lets leading zeros and host bits pass.
func parseCIDRs(texts []string) ([]netip.Prefix, error) {
	var cidrs []netip.Prefix
	for _, text := range texts {
		_, network, err := netutils.ParseCIDRSloppy(text)
		if err != nil {
			return nil, fmt.Errorf("%q is not a CIDR: %w", text, err)
		}
		addr, _ := netip.AddrFromSlice(network.IP)
		ones, _ := network.Mask.Size()
		cidrs = append(cidrs, netip.PrefixFrom(addr.Unmap(), ones))
	}
	return cidrs, nil
}

// parseAddr reads an address as validation does, which lets leading zeros pass.
func parseAddr(text string) (netip.Addr, error) {
	addr, ok := netip.AddrFromSlice(netutils.ParseIPSloppy(text))
	if !ok {
		return netip.Addr{}, fmt.Errorf("%q is not an IP address", text)
	}
	return addr.Unmap(), nil
}
