package config

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	componentbaseconfig "k8s.io/component-base/config"
	logsapi "k8s.io/component-base/logs/api/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// KubeProxyConfiguration configures one kube-proxy.
type KubeProxyConfiguration struct {
	metav1.TypeMeta

	// FeatureGates switches features by name.
	FeatureGates map[string]bool
	// ClientConnection says how to reach the API server.
	ClientConnection componentbaseconfig.ClientConnectionConfiguration
	// Logging chooses the form and the amount of log lines.
	Logging logsapi.LoggingConfiguration

	// HostnameOverride is the name of this Node as it was given; empty means the host's name.
	HostnameOverride string
	// NodeIPOverride replaces the Node's primary IPs; at most one a family, the primary family first.
	NodeIPOverride []string
	// IPFamilyPolicy tells how many IP families must be usable; empty behaves as PreferDualStack.
	IPFamilyPolicy IPFamilyPolicy

	// HealthzBindAddress is IP:port of the health check server; empty means it is off.
	HealthzBindAddress string
	// MetricsBindAddress is IP:port of the metrics server; empty means it is off.
	MetricsBindAddress string
	// BindAddressHardFail makes a failure to bind one of the two fatal.
	BindAddressHardFail bool
	// EnableProfiling serves profiles on the metrics server.
	EnableProfiling bool
	// ShowHiddenMetricsForVersion is "" or the previous minor version.
	ShowHiddenMetricsForVersion string

	// ConfigHardFail makes a doubtful configuration fatal instead of a warning.
	ConfigHardFail bool

	// Mode chooses the backend; empty means iptables on Linux.
	Mode ProxyMode
	// SyncPeriod bounds the time until a failed sync is repeated; a change that waits for twice as long is unhealthy.
	SyncPeriod metav1.Duration
	// MinSyncPeriod bounds the rate of syncs; 0 means not at all.
	MinSyncPeriod metav1.Duration
	// ConfigSyncPeriod has no effect; it was the resync period of informers.
	ConfigSyncPeriod metav1.Duration

	// DetectLocalMode tells how local traffic is recognised; empty means ClusterCIDR.
	DetectLocalMode LocalMode
	// DetectLocal holds what the mode in use needs to know.
	DetectLocal DetectLocalConfiguration
	// NodePortAddresses lists CIDRs and the keywords primary, localhost and all.
	NodePortAddresses []string

	// Linux holds what exists on Linux only.
	Linux KubeProxyLinuxConfiguration
	// Windows holds what exists on Windows only.
	Windows KubeProxyWindowsConfiguration

	// IPTables holds what the iptables backend alone understands.
	IPTables KubeProxyIPTablesConfiguration
	// IPVS holds what the ipvs backend alone understood.
	IPVS KubeProxyIPVSConfiguration
	// NFTables holds what the nftables backend alone understands.
	NFTables KubeProxyNFTablesConfiguration
	// Winkernel holds what the Windows kernel backend alone understands.
	Winkernel KubeProxyWinkernelConfiguration
}

// DetectLocalConfiguration holds what the ways to recognise local traffic need to know.
type DetectLocalConfiguration struct {
	// ClusterCIDRs are the ranges of pod addresses, at most one a family.
	ClusterCIDRs []string
	// BridgeInterface is the bridge that local pods are attached to.
	BridgeInterface string
	// InterfaceNamePrefix is how the names of local pods' interfaces begin.
	InterfaceNamePrefix string
}

// KubeProxyLinuxConfiguration holds what exists on Linux only.
type KubeProxyLinuxConfiguration struct {
	// Conntrack sets the kernel's connection tracking at start.
	Conntrack KubeProxyConntrackConfiguration
	// MasqueradeAll masquerades all traffic to cluster IPs.
	MasqueradeAll bool
	// OOMScoreAdj is the process's oom_score_adj, -1000 to 1000.
	OOMScoreAdj int32
}

// KubeProxyConntrackConfiguration sets the kernel's connection tracking; a zero leaves the kernel's value alone.
type KubeProxyConntrackConfiguration struct {
	// MaxPerCore is the number of tracked connections for each CPU core.
	MaxPerCore int32
	// Min is the least number of tracked connections.
	Min int32
	// TCPEstablishedTimeout is how long an idle TCP connection is remembered.
	TCPEstablishedTimeout metav1.Duration
	// TCPCloseWaitTimeout is how long an idle TCP connection in state CLOSE_WAIT is remembered.
	TCPCloseWaitTimeout metav1.Duration
	// TCPBeLiberal does not mark out-of-window TCP packets INVALID.
	TCPBeLiberal bool
	// UDPTimeout is how long an unanswered UDP flow is remembered.
	UDPTimeout metav1.Duration
	// UDPStreamTimeout is how long an answered UDP flow is remembered.
	UDPStreamTimeout metav1.Duration
}

// KubeProxyWindowsConfiguration holds what exists on Windows only.
type KubeProxyWindowsConfiguration struct {
	// RunAsService reports to the service control manager.
	RunAsService bool
}

// KubeProxyIPTablesConfiguration holds what the iptables backend alone understands.
type KubeProxyIPTablesConfiguration struct {
	// MasqueradeBit is the bit of the packet mark, 0 to 31.
	MasqueradeBit int32
	// LocalhostNodePorts accepts NodePort traffic to 127.0.0.1.
	LocalhostNodePorts bool
}

// KubeProxyIPVSConfiguration holds what the ipvs backend alone understood.
type KubeProxyIPVSConfiguration struct {
	// MasqueradeBit is the bit of the packet mark, 0 to 31.
	MasqueradeBit int32
	// Scheduler is the name of the IPVS scheduler.
	Scheduler string
	// ExcludeCIDRs are ranges that clean-up leaves alone.
	ExcludeCIDRs []string
	// StrictARP answers ARP only on the interface that has the address.
	StrictARP bool
	// TCPTimeout is how long an idle TCP session is kept; 0 leaves the system's value.
	TCPTimeout metav1.Duration
	// TCPFinTimeout is how long a TCP session is kept after a FIN; 0 leaves the system's value.
	TCPFinTimeout metav1.Duration
	// UDPTimeout is how long an idle UDP session is kept; 0 leaves the system's value.
	UDPTimeout metav1.Duration
}

// KubeProxyNFTablesConfiguration holds what the nftables backend alone understands.
type KubeProxyNFTablesConfiguration struct {
	// MasqueradeBit is the bit of the packet mark, 0 to 31.
	MasqueradeBit int32
}

// KubeProxyWinkernelConfiguration holds what the Windows kernel backend alone understands.
type KubeProxyWinkernelConfiguration struct {
	// NetworkName is the HNS network.
	NetworkName string
	// SourceVip is the address that load-balanced traffic is translated from.
	SourceVip string
	// EnableDSR lets answers go directly to the client.
	EnableDSR bool
	// RootHnsEndpointName is the endpoint that joins the root namespace to the bridge.
	RootHnsEndpointName string
	// ForwardHealthCheckVip forwards the service's virtual IP on its health check port.
	ForwardHealthCheckVip bool
}

// ProxyMode names a backend.
type ProxyMode string

// The backends by name.
const (
	ProxyModeIPTables    ProxyMode = "iptables"
	ProxyModeIPVS        ProxyMode = "ipvs"
	ProxyModeNFTables    ProxyMode = "nftables"
	ProxyModeKernelspace ProxyMode = "kernelspace"
)

// LocalMode names a way to recognise local traffic.
type LocalMode string

// The ways to recognise local traffic.
const (
	LocalModeClusterCIDR         LocalMode = "ClusterCIDR"
	LocalModeNodeCIDR            LocalMode = "NodeCIDR"
	LocalModeBridgeInterface     LocalMode = "BridgeInterface"
	LocalModeInterfaceNamePrefix LocalMode = "InterfaceNamePrefix"
)

// IPFamilyPolicy tells how many IP families must be usable.
type IPFamilyPolicy string

// The policies; empty behaves as PreferDualStack.
const (
	IPFamilyPolicySingleStack      IPFamilyPolicy = "SingleStack"
	IPFamilyPolicyPreferDualStack  IPFamilyPolicy = "PreferDualStack"
	IPFamilyPolicyRequireDualStack IPFamilyPolicy = "RequireDualStack"
)

// The keywords that nodePortAddresses may hold beside CIDRs.
const (
	NodePortAddressesPrimary   = "primary"
	NodePortAddressesLocalhost = "localhost"
	NodePortAddressesAll       = "all"
)
