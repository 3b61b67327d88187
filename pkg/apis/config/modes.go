package config

import (
	"cmp"
	"time"
)

const (
	// DefaultProxyMode is the mode on Linux if the configuration names none.
	DefaultProxyMode = ProxyModeIPTables
	// SuccessorMode is the recommended mode for a configuration with a mode that this proxy cannot run in.
	SuccessorMode = ProxyModeNFTables
)

// ServedModes lists the modes that this proxy can run in.
func ServedModes() []ProxyMode { return []ProxyMode{ProxyModeIPTables, ProxyModeNFTables} }

// KnownModes lists the modes of Linux, which a cluster may change from.
func KnownModes() []ProxyMode { return append(ServedModes(), ProxyModeIPVS) }

// EffectiveMode returns the mode, or the default if none is set.
func (c *KubeProxyConfiguration) EffectiveMode() ProxyMode { return cmp.Or(c.Mode, DefaultProxyMode) }

// EffectiveNodePortAddresses returns NodePortAddresses, or the default of the mode if there are none.
func (c *KubeProxyConfiguration) EffectiveNodePortAddresses() []string {
	switch {
	case len(c.NodePortAddresses) > 0:
		return c.NodePortAddresses
	case c.Mode == ProxyModeNFTables:
		return []string{NodePortAddressesPrimary}
	default:
		return []string{NodePortAddressesAll}
	}
}

// ServiceLimits bounds what one Service may add to the rules; its fields are those of plan.Limits.
type ServiceLimits struct {
	Elements                int
	EndpointsShared         bool
	Endpoints, SourceRanges int
}

// ServiceLimits returns the limits of the mode. Beyond them, the rules of one Service would take more of the memory or time of a node
// than its author may use.
//
// In iptables mode the kernel looks at all rules whenever some are written, up to four for each endpoint: ten Services with 25,000
// endpoints delay each sync by less than a second. It replaces those of a port together, 10,000 in 0.3 s, 20,000 in 1.4 s and 50,000
// in 7.5 s of processor time (nft variant, Linux 6.18). In nftables mode the source ranges of a Service are replaced together, 10,000 in
// 0.08 s.
func (c *KubeProxyConfiguration) ServiceLimits() ServiceLimits {
	if c.EffectiveMode() == ProxyModeIPTables {
		return ServiceLimits{Elements: 25_000, EndpointsShared: true, Endpoints: 10_000, SourceRanges: 10_000}
	}
	return ServiceLimits{Elements: 1_000_000, Endpoints: 200_000, SourceRanges: 10_000}
}

// PicksBySlots reports whether the mode can pick endpoints by a hash, or by weights in turn: iptables has no such match.
func (c *KubeProxyConfiguration) PicksBySlots() bool { return c.EffectiveMode() != ProxyModeIPTables }

// HasFastPath reports whether connections can take a fast path in the mode: iptables cannot load the kernel's.
func (c *KubeProxyConfiguration) HasFastPath() bool { return c.EffectiveMode() == ProxyModeNFTables }

// PartTime returns how long one part of an expensive change may take in the mode, and so delay other changes. In iptables mode each
// sync costs much more by itself, because the kernel looks at all rules.
func (c *KubeProxyConfiguration) PartTime() time.Duration {
	if c.EffectiveMode() == ProxyModeIPTables {
		return 200 * time.Millisecond
	}
	return 20 * time.Millisecond
}

// LoopbackPolicy is how connections to node ports on loopback addresses are handled.
type LoopbackPolicy uint8

const (
	// LoopbackUntouched leaves them to local sockets.
	LoopbackUntouched LoopbackPolicy = iota
	// LoopbackRouted serves them in the kernel, in IPv4.
	LoopbackRouted
	// LoopbackForwarded serves TCP where NodePortAddresses contains loopback addresses, by sockets of the proxy, and rejects
	// all others.
	LoopbackForwarded
)

// LoopbackPolicy returns the policy of the mode. forward is the feature gate KubeProxyNFTablesLocalhostNodePorts.
func (c *KubeProxyConfiguration) LoopbackPolicy(forward bool) LoopbackPolicy {
	switch mode := c.EffectiveMode(); {
	case mode == ProxyModeIPTables && c.IPTables.LocalhostNodePorts:
		return LoopbackRouted
	case mode == ProxyModeNFTables && forward:
		return LoopbackForwarded
	default:
		return LoopbackUntouched
	}
}
