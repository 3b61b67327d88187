package app

import (
	"fmt"

	"k8s.io/component-base/featuregate"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/features"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/node"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// The functions of this file translate parts of a valid configuration into the options of other packages.

// PlanOptions are the options of the plan.
func PlanOptions(cfg *config.KubeProxyConfiguration, gates featuregate.FeatureGate) (*plan.Options, error) {
	nodePorts, err := plan.ParseNodePortAddresses(cfg.EffectiveNodePortAddresses())
	if err != nil {
		return nil, fmt.Errorf("nodePortAddresses: %w", err)
	}
	options := &plan.Options{
		NodePorts:        nodePorts,
		NodeCIDR:         cfg.DetectLocalMode == config.LocalModeNodeCIDR,
		SingleStack:      cfg.IPFamilyPolicy == config.IPFamilyPolicySingleStack,
		MasqueradeAll:    cfg.Linux.MasqueradeAll,
		Limits:           plan.Limits(cfg.ServiceLimits()),
		ServeExternalIPs: gates.Enabled(features.AllowServiceExternalIPs),

		KeepTerminatingUDPFlows: gates.Enabled(features.KeepTerminatingUDPFlows),
		ResetGoneEndpoints:      gates.Enabled(features.ResetGoneEndpoints),
		Balancing:               plan.Balancing{On: gates.Enabled(features.LoadBalancerAlgorithms)},
		Fences:                  plan.Fences{On: gates.Enabled(features.ServiceLimits), Namespaces: fences(cfg.ConnectionLimits)},
		FastPath:                plan.FastPath{On: gates.Enabled(features.FlowtableFastPath) && cfg.HasFastPath(), All: cfg.NFTables.FastPath == config.FastPathAll},
	}
	if cfg.PicksBySlots() {
		options.Balancing.Slots = plan.TableSlots
	}
	switch cfg.LoopbackPolicy(gates.Enabled(features.KubeProxyNFTablesLocalhostNodePorts)) {
	case config.LoopbackRouted:
		options.NodePorts.Loopback = true
	case config.LoopbackForwarded:
		options.Localhost = plan.Localhost{Reject: true, Forwarded: nodePorts.LoopbackFamilies()}
	case config.LoopbackUntouched:
	}
	options.LocalTraffic, err = localTraffic(cfg)
	return options, err
}

// fences are the bounds of connections by namespace.
func fences(limits []config.ConnectionLimits) map[string]cluster.Fence {
	all := map[string]cluster.Fence{}
	for _, of := range limits {
		all[of.Namespace] = cluster.Fence{PerSecond: uint32(of.PerSecond), Open: uint32(of.Open),
			ClientPerSecond: uint32(of.ClientPerSecond), ClientOpen: uint32(of.ClientOpen)}
	}
	return all
}

// localTraffic is how traffic of local pods is detected, except by the pod CIDRs of the Node.
func localTraffic(cfg *config.KubeProxyConfiguration) (local plan.LocalTraffic, err error) {
	switch cfg.DetectLocalMode {
	case config.LocalModeBridgeInterface:
		local.Interface = cfg.DetectLocal.BridgeInterface
	case config.LocalModeInterfaceNamePrefix:
		local.Interface = cfg.DetectLocal.InterfaceNamePrefix + "*"
	case config.LocalModeClusterCIDR, "":
		if local.CIDRs, err = cluster.ParsePrefixes(cfg.DetectLocal.ClusterCIDRs); err != nil {
			return local, fmt.Errorf("detectLocal.clusterCIDRs: %w", err)
		}
	}
	return local, nil
}

// conntrackSettings are the settings of connection tracking.
func conntrackSettings(c *config.KubeProxyConntrackConfiguration) *node.Conntrack {
	return &node.Conntrack{
		MaxPerCore: c.MaxPerCore, Min: c.Min,
		TCPEstablished: c.TCPEstablishedTimeout.Duration, TCPCloseWait: c.TCPCloseWaitTimeout.Duration, TCPBeLiberal: c.TCPBeLiberal,
		UDP: c.UDPTimeout.Duration, UDPStream: c.UDPStreamTimeout.Duration,
	}
}
