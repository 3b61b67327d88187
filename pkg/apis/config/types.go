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

	// FeatureGates sets feature gates by name.
	FeatureGates map[string]bool
	// ClientConnection configures the connection to the API server.
	ClientConnection componentbaseconfig.ClientConnectionConfiguration
	// Logging configures logging.
	Logging logsapi.LoggingConfiguration

	// HostnameOverride is the name of this Node as configured; empty means the host's name.
	HostnameOverride string
	// NodeIPOverride replaces the Node's primary IPs; at most one of each family, the primary family first.
	NodeIPOverride []string
	// IPFamilyPolicy selects which IP families are required; empty is PreferDualStack.
	IPFamilyPolicy IPFamilyPolicy

	// HealthzBindAddress is IP:port of the health check server; empty disables it.
	HealthzBindAddress string
	// MetricsBindAddress is IP:port of the metrics server; empty disables it.
	MetricsBindAddress string
	// BindAddressHardFail makes a failure to bind one of the two fatal.
	BindAddressHardFail bool
	// EnableProfiling serves profiles on the metrics server.
	EnableProfiling bool
	// ShowHiddenMetricsForVersion is "" or the previous minor version.
	ShowHiddenMetricsForVersion string

	// ConfigHardFail makes a questionable configuration fatal instead of a warning.
	ConfigHardFail bool

	// Mode selects the backend; empty means iptables on Linux.
	Mode ProxyMode
	// SyncPeriod limits the time until a failed sync is retried. The proxy is unhealthy if a change has been pending
	// for twice as long.
	SyncPeriod metav1.Duration
	// MinSyncPeriod limits the rate of syncs; 0 is no limit.
	MinSyncPeriod metav1.Duration
	// ConfigSyncPeriod has no effect; it was the resync period of informers.
	ConfigSyncPeriod metav1.Duration

	// DetectLocalMode selects how local traffic is detected; empty means ClusterCIDR.
	DetectLocalMode LocalMode
	// DetectLocal holds the parameters of DetectLocalMode.
	DetectLocal DetectLocalConfiguration
	// NodePortAddresses lists CIDRs and the keywords primary, localhost and all.
	NodePortAddresses []string

	// Linux holds settings for Linux.
	Linux KubeProxyLinuxConfiguration
	// Windows holds settings for Windows.
	Windows KubeProxyWindowsConfiguration

	// IPTables holds settings of the iptables backend.
	IPTables KubeProxyIPTablesConfiguration
	// IPVS holds settings of the ipvs backend, which this proxy does not have.
	IPVS KubeProxyIPVSConfiguration
	// NFTables holds settings of the nftables backend.
	NFTables KubeProxyNFTablesConfiguration
	// Winkernel holds settings of the Windows kernel backend.
	Winkernel KubeProxyWinkernelConfiguration
}

// DetectLocalConfiguration holds the parameters for detecting local traffic.
type DetectLocalConfiguration struct {
	// ClusterCIDRs are the ranges of pod addresses, at most one of each family.
	ClusterCIDRs []string
	// BridgeInterface is the bridge of local pods.
	BridgeInterface string
	// InterfaceNamePrefix is the prefix of the names of local pods' interfaces.
	InterfaceNamePrefix string
}

// KubeProxyLinuxConfiguration holds settings for Linux.
type KubeProxyLinuxConfiguration struct {
	// Conntrack configures the kernel's connection tracking at start.
	Conntrack KubeProxyConntrackConfiguration
	// MasqueradeAll masquerades all traffic to cluster IPs.
	MasqueradeAll bool
	// OOMScoreAdj is the process's oom_score_adj, -1000 to 1000.
	OOMScoreAdj int32
}

// KubeProxyConntrackConfiguration configures the kernel's connection tracking; 0 keeps the kernel's value.
type KubeProxyConntrackConfiguration struct {
	// MaxPerCore is the number of tracked connections for each CPU core.
	MaxPerCore int32
	// Min is the minimum number of tracked connections.
	Min int32
	// TCPEstablishedTimeout is the timeout of idle TCP connections.
	TCPEstablishedTimeout metav1.Duration
	// TCPCloseWaitTimeout is the timeout of idle TCP connections in state CLOSE_WAIT.
	TCPCloseWaitTimeout metav1.Duration
	// TCPBeLiberal does not mark out-of-window TCP packets INVALID.
	TCPBeLiberal bool
	// UDPTimeout is the timeout of unanswered UDP flows.
	UDPTimeout metav1.Duration
	// UDPStreamTimeout is the timeout of answered UDP flows.
	UDPStreamTimeout metav1.Duration
}

// KubeProxyWindowsConfiguration holds settings for Windows.
type KubeProxyWindowsConfiguration struct {
	// RunAsService reports to the service control manager.
	RunAsService bool
}

// KubeProxyIPTablesConfiguration holds settings of the iptables backend.
type KubeProxyIPTablesConfiguration struct {
	// MasqueradeBit is the bit of the packet mark, 0 to 31.
	MasqueradeBit int32
	// LocalhostNodePorts accepts NodePort traffic to 127.0.0.1.
	LocalhostNodePorts bool
}

// KubeProxyIPVSConfiguration holds settings of the ipvs backend, which this proxy does not have.
type KubeProxyIPVSConfiguration struct {
	// MasqueradeBit is the bit of the packet mark, 0 to 31.
	MasqueradeBit int32
	// Scheduler is the name of the IPVS scheduler.
	Scheduler string
	// ExcludeCIDRs are ranges that cleanup does not touch.
	ExcludeCIDRs []string
	// StrictARP answers ARP only on the interface that has the address.
	StrictARP bool
	// TCPTimeout is the timeout of idle TCP sessions; 0 keeps the system's value.
	TCPTimeout metav1.Duration
	// TCPFinTimeout is the timeout of TCP sessions after a FIN; 0 keeps the system's value.
	TCPFinTimeout metav1.Duration
	// UDPTimeout is the timeout of idle UDP sessions; 0 keeps the system's value.
	UDPTimeout metav1.Duration
}

// KubeProxyNFTablesConfiguration holds settings of the nftables backend.
type KubeProxyNFTablesConfiguration struct {
	// MasqueradeBit is the bit of the packet mark, 0 to 31.
	MasqueradeBit int32
}

// KubeProxyWinkernelConfiguration holds settings of the Windows kernel backend.
type KubeProxyWinkernelConfiguration struct {
	// NetworkName is the HNS network.
	NetworkName string
	// SourceVip is the source address of load-balanced traffic.
	SourceVip string
	// EnableDSR lets replies go directly to the client.
	EnableDSR bool
	// RootHnsEndpointName is the endpoint that connects the root namespace to the bridge.
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

// LocalMode is a way to detect local traffic.
type LocalMode string

// The ways to detect local traffic.
const (
	LocalModeClusterCIDR         LocalMode = "ClusterCIDR"
	LocalModeNodeCIDR            LocalMode = "NodeCIDR"
	LocalModeBridgeInterface     LocalMode = "BridgeInterface"
	LocalModeInterfaceNamePrefix LocalMode = "InterfaceNamePrefix"
)

// IPFamilyPolicy selects which IP families are required.
type IPFamilyPolicy string

// The policies; empty is PreferDualStack.
const (
	IPFamilyPolicySingleStack      IPFamilyPolicy = "SingleStack"
	IPFamilyPolicyPreferDualStack  IPFamilyPolicy = "PreferDualStack"
	IPFamilyPolicyRequireDualStack IPFamilyPolicy = "RequireDualStack"
)

// The keywords in nodePortAddresses besides CIDRs.
const (
	NodePortAddressesPrimary   = "primary"
	NodePortAddressesLocalhost = "localhost"
	NodePortAddressesAll       = "all"
)
