package config

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KubeProxyConfiguration configures one kube-proxy. The root holds settings that all backends and platforms share;
// settings of one platform or backend are in a section of their own.
type KubeProxyConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// featureGates sets feature gates by name. A gate of Kubernetes that this proxy does not use causes a warning, an
	// unknown name an error. docs/feature-gates.md lists them.
	FeatureGates map[string]bool `json:"featureGates,omitempty"`

	// clientConnection configures the connection to the API server. Without a kubeconfig and without --master, the
	// pod's service account is used.
	ClientConnection ClientConnectionConfiguration `json:"clientConnection"`
	// logging configures logging. The flags for logging override it.
	Logging LoggingConfiguration `json:"logging"`

	// hostnameOverride is the name of the Node this proxy runs on; it is trimmed and lower-cased. Empty means the host
	// name of the operating system. The flag --hostname-override overrides it.
	HostnameOverride string `json:"hostnameOverride"`
	// nodeIPOverride replaces the primary IPs of the Node object, at most one of each family; the family of the first
	// one is the primary family. Empty means that those of the Node object are used. No socket is bound to them.
	NodeIPOverride []string `json:"nodeIPOverride,omitempty"`
	// ipFamilyPolicy selects which IP families are required on this node: with RequireDualStack a missing family is
	// fatal, PreferDualStack serves the families that work, and SingleStack serves only the primary family. Empty means
	// PreferDualStack.
	IPFamilyPolicy IPFamilyPolicy `json:"ipFamilyPolicy"`

	// healthzBindAddress is the IP address and port of the health check server (/healthz, /livez). The default is
	// 0.0.0.0:10256, or [::]:10256 if the first nodeIPOverride is an IPv6 address; a missing port is 10256. An explicit
	// "" disables the server.
	HealthzBindAddress string `json:"healthzBindAddress"`
	// metricsBindAddress is the IP address and port of the metrics and status server. The default is 127.0.0.1:10249,
	// or [::1]:10249 if the first nodeIPOverride is an IPv6 address; a missing port is 10249. An explicit "" disables
	// the server.
	MetricsBindAddress string `json:"metricsBindAddress"`
	// bindAddressHardFail makes it fatal if one of the two servers cannot bind its address; false logs the failure and
	// retries every 5 seconds. (The default of v1alpha1 is false.)
	BindAddressHardFail bool `json:"bindAddressHardFail"`
	// enableProfiling serves /debug/pprof and the page that sets the log level on the metrics server.
	EnableProfiling bool `json:"enableProfiling"`
	// showHiddenMetricsForVersion shows the metrics that were hidden in that version, written as 1.36. Only the
	// previous minor version is accepted. Empty shows none.
	ShowHiddenMetricsForVersion string `json:"showHiddenMetricsForVersion"`

	// configHardFail makes an unknown or duplicate field, and nodePortAddresses or CIDRs without an entry for an IP
	// family in use, fatal. false logs a warning and continues if possible, as with v1alpha1.
	ConfigHardFail bool `json:"configHardFail"`

	// mode selects the backend: iptables or nftables on Linux, kernelspace on Windows. ipvs is accepted for conversion
	// only; it cannot be started. Empty means iptables on Linux and kernelspace on Windows.
	Mode ProxyMode `json:"mode"`
	// syncPeriod limits the time until a failed sync is retried. If a change is not programmed after twice as long,
	// /healthz and /livez fail. External changes of the rules are detected several times a second, independent of it. A
	// duration greater than 0.
	SyncPeriod metav1.Duration `json:"syncPeriod"`
	// minSyncPeriod limits the rate of syncs: the minimum time from the end of one to the start of the next, less up to two
	// syncs while these are short, so that a change is in force within it. The first change after an idle time is never
	// delayed, nor are cheap changes: syncs may come earlier as long as they use less than 5 % of a core in any minute.
	// Repairs of rules that another program modified are not delayed either, unless the last sync failed. A duration; 0
	// means no limit. It must not exceed syncPeriod.
	MinSyncPeriod metav1.Duration `json:"minSyncPeriod"`
	// configSyncPeriod has no effect; it was the resync period of informers, which this proxy does not use. A duration
	// greater than 0.
	ConfigSyncPeriod metav1.Duration `json:"configSyncPeriod"`

	// detectLocalMode selects how traffic from pods of this node is detected: ClusterCIDR, NodeCIDR, BridgeInterface or
	// InterfaceNamePrefix. Empty means ClusterCIDR.
	DetectLocalMode LocalMode `json:"detectLocalMode"`
	// detectLocal holds the parameters of detectLocalMode.
	DetectLocal DetectLocalConfiguration `json:"detectLocal"`
	// nodePortAddresses lists the CIDRs and keywords that select the addresses of this node that accept NodePort
	// traffic. Keywords are primary (the Node's primary IPs), localhost (127.0.0.0/8 and ::1/128) and all (0.0.0.0/0
	// and ::/0). Empty means all in iptables mode and primary in nftables mode.
	NodePortAddresses []string `json:"nodePortAddresses,omitempty"`

	// linux holds settings for Linux. It has no effect elsewhere.
	Linux KubeProxyLinuxConfiguration `json:"linux"`
	// windows holds settings for Windows. It is kept and validated, and has no effect elsewhere.
	Windows KubeProxyWindowsConfiguration `json:"windows"`

	// iptables holds settings of the iptables backend.
	IPTables KubeProxyIPTablesConfiguration `json:"iptables"`
	// ipvs holds settings of the ipvs backend, which this proxy does not have. It is kept and, in ipvs mode, validated,
	// so that a file can be converted in both directions.
	IPVS KubeProxyIPVSConfiguration `json:"ipvs"`
	// nftables holds settings of the nftables backend.
	NFTables KubeProxyNFTablesConfiguration `json:"nftables"`
	// winkernel holds settings of the Windows kernel backend. It is kept and has no effect elsewhere.
	Winkernel KubeProxyWinkernelConfiguration `json:"winkernel"`
}

// ClientConnectionConfiguration configures the connection to the API server.
type ClientConnectionConfiguration struct {
	// kubeconfig is the path of a kubeconfig file. Empty means the pod's service account.
	Kubeconfig string `json:"kubeconfig"`
	// acceptContentTypes is the Accept header of requests that publish Events. Empty means the default of the client
	// library. Watches request protobuf, or JSON if the server does not support that.
	AcceptContentTypes string `json:"acceptContentTypes"`
	// contentType is the media type of Events that are sent.
	ContentType string `json:"contentType"`
	// qps is the average number of requests per second that are allowed; negative means no limit. 0 means the default.
	QPS float32 `json:"qps"`
	// burst is the number of requests that may exceed qps at once. Not negative; 0 means the default.
	Burst int32 `json:"burst"`
}

// LoggingConfiguration configures logging.
type LoggingConfiguration struct {
	// format is text (klog's lines) or json (an object per line).
	Format string `json:"format"`
	// flushFrequency is the maximum time that a log line is buffered. A duration greater than 0.
	FlushFrequency metav1.Duration `json:"flushFrequency"`
	// verbosity is the level up to which messages are logged; higher levels log more. Errors are always logged.
	Verbosity uint32 `json:"verbosity"`
	// vmodule raises the verbosity for single source files. Only with format text.
	VModule []VModuleItem `json:"vmodule,omitempty"`
	// options holds settings of single formats. Alpha: needs the feature gate LoggingAlphaOptions.
	Options LoggingOptions `json:"options"`
}

// VModuleItem sets the verbosity of the source files that match a pattern.
type VModuleItem struct {
	// filePattern is the base name of a source file without ".go", or a glob for such names, without "," and "=".
	FilePattern string `json:"filePattern"`
	// verbosity is the level up to which messages of these files are logged.
	Verbosity uint32 `json:"verbosity"`
}

// LoggingOptions holds settings of single log formats.
type LoggingOptions struct {
	// text sets the destination of lines in format text. Alpha: needs the feature gate LoggingAlphaOptions.
	Text LogRoutingOptions `json:"text"`
	// json sets the destination of lines in format json. Alpha: needs the feature gate LoggingAlphaOptions.
	JSON LogRoutingOptions `json:"json"`
}

// LogRoutingOptions sets the destination of the lines of one log format.
type LogRoutingOptions struct {
	// splitStream writes errors to standard error and everything else, buffered, to standard output. false writes both
	// to one stream, unbuffered.
	SplitStream bool `json:"splitStream"`
	// infoBufferSize is the size of the buffer with splitStream, in bytes (512, 1Ki, 5M). 0 means no buffer.
	InfoBufferSize resource.QuantityValue `json:"infoBufferSize"`
}

// DetectLocalConfiguration holds the parameters for detecting local traffic.
type DetectLocalConfiguration struct {
	// clusterCIDRs are the ranges of pod addresses in the cluster, at most one of each family. Used in mode
	// ClusterCIDR; a family without one has no local traffic.
	ClusterCIDRs []string `json:"clusterCIDRs,omitempty"`
	// bridgeInterface is the name of the bridge on which traffic from local pods arrives. Required in mode BridgeInterface.
	BridgeInterface string `json:"bridgeInterface"`
	// interfaceNamePrefix is the prefix of the names of the interfaces on which traffic from local pods arrives.
	// Required in mode InterfaceNamePrefix.
	InterfaceNamePrefix string `json:"interfaceNamePrefix"`
}

// KubeProxyLinuxConfiguration holds settings for Linux.
type KubeProxyLinuxConfiguration struct {
	// conntrack configures the kernel's connection tracking at start.
	Conntrack KubeProxyConntrackConfiguration `json:"conntrack"`
	// masqueradeAll masquerades all traffic to cluster IPs: its source address becomes the node's. Some pod networks need it.
	MasqueradeAll bool `json:"masqueradeAll"`
	// oomScoreAdj is the oom_score_adj of the proxy's process: -1000 is never killed, 1000 is killed first.
	OOMScoreAdj int32 `json:"oomScoreAdj"`
}

// KubeProxyConntrackConfiguration configures the kernel's connection tracking.
type KubeProxyConntrackConfiguration struct {
	// maxPerCore is the number of tracked connections for each CPU core, at most 1048576 in all. 0 keeps the kernel's
	// limit, and ignores min.
	MaxPerCore int32 `json:"maxPerCore"`
	// min is the minimum number of tracked connections, however few cores there are.
	Min int32 `json:"min"`
	// tcpEstablishedTimeout is the timeout of idle TCP connections. A duration; 0 keeps the kernel's setting.
	TCPEstablishedTimeout metav1.Duration `json:"tcpEstablishedTimeout"`
	// tcpCloseWaitTimeout is the timeout of idle TCP connections in state CLOSE_WAIT. A duration; 0 keeps the kernel's
	// setting.
	TCPCloseWaitTimeout metav1.Duration `json:"tcpCloseWaitTimeout"`
	// tcpBeLiberal accepts TCP packets outside the window instead of marking them INVALID. false keeps the kernel's setting.
	TCPBeLiberal bool `json:"tcpBeLiberal"`
	// udpTimeout is the timeout of UDP flows without a reply. A duration; 0 keeps the kernel's setting.
	UDPTimeout metav1.Duration `json:"udpTimeout"`
	// udpStreamTimeout is the timeout of UDP flows with replies. A duration; 0 keeps the kernel's setting.
	UDPStreamTimeout metav1.Duration `json:"udpStreamTimeout"`
}

// KubeProxyWindowsConfiguration holds settings for Windows.
type KubeProxyWindowsConfiguration struct {
	// runAsService reports to the Windows service control manager (the flag --windows-service).
	RunAsService bool `json:"runAsService"`
}

// KubeProxyIPTablesConfiguration holds settings of the iptables backend.
type KubeProxyIPTablesConfiguration struct {
	// masqueradeBit is the bit of the packet mark, 0 to 31, that marks packets to be masqueraded.
	MasqueradeBit int32 `json:"masqueradeBit"`
	// localhostNodePorts accepts NodePort traffic to 127.0.0.1, which needs the sysctl route_localnet. IPv4 only. (The
	// default of v1alpha1 is true.)
	LocalhostNodePorts bool `json:"localhostNodePorts"`
}

// KubeProxyIPVSConfiguration holds settings of the ipvs backend, which this proxy does not have.
type KubeProxyIPVSConfiguration struct {
	// masqueradeBit is the bit of the packet mark, 0 to 31, that marks packets to be masqueraded. (In v1alpha1 it is in
	// the iptables section.)
	MasqueradeBit int32 `json:"masqueradeBit"`
	// scheduler is the name of the IPVS scheduler. Empty means rr.
	Scheduler string `json:"scheduler"`
	// excludeCIDRs are ranges whose virtual servers are kept by cleanup.
	ExcludeCIDRs []string `json:"excludeCIDRs,omitempty"`
	// strictARP answers ARP requests only on the interface that has the address.
	StrictARP bool `json:"strictARP"`
	// tcpTimeout is the timeout of idle TCP sessions. A duration; 0 keeps the system's value.
	TCPTimeout metav1.Duration `json:"tcpTimeout"`
	// tcpFinTimeout is the timeout of TCP sessions after a FIN. A duration; 0 keeps the system's value.
	TCPFinTimeout metav1.Duration `json:"tcpFinTimeout"`
	// udpTimeout is the timeout of idle UDP sessions. A duration; 0 keeps the system's value.
	UDPTimeout metav1.Duration `json:"udpTimeout"`
}

// KubeProxyNFTablesConfiguration holds settings of the nftables backend.
type KubeProxyNFTablesConfiguration struct {
	// masqueradeBit is the bit of the packet mark, 0 to 31, that marks packets to be masqueraded.
	MasqueradeBit int32 `json:"masqueradeBit"`
}

// KubeProxyWinkernelConfiguration holds settings of the Windows kernel backend.
type KubeProxyWinkernelConfiguration struct {
	// networkName is the HNS network in which endpoints and policies are created.
	NetworkName string `json:"networkName"`
	// sourceVip is the source address of load-balanced traffic.
	SourceVip string `json:"sourceVip"`
	// enableDSR lets replies go directly from the endpoint to the client.
	EnableDSR bool `json:"enableDSR"`
	// rootHnsEndpointName is the HNS endpoint that connects the root network namespace to the bridge.
	RootHnsEndpointName string `json:"rootHnsEndpointName"`
	// forwardHealthCheckVip forwards the service's virtual IP on its health check port.
	ForwardHealthCheckVip bool `json:"forwardHealthCheckVip"`
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
