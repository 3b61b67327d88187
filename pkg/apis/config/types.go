package config

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KubeProxyConfiguration configures one kube-proxy. The root holds settings that all backends and platforms share;
// settings of one platform or backend are in a section of their own.
type KubeProxyConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// featureGates sets feature gates by name; docs/feature-gates.md lists them.
	FeatureGates map[string]bool `json:"featureGates,omitempty"`

	// clientConnection configures the connection to the API server.
	ClientConnection ClientConnectionConfiguration `json:"clientConnection"`
	// logging configures logging; the flags for logging override it.
	Logging LoggingConfiguration `json:"logging"`

	// hostnameOverride is the name of this Node, trimmed and in lower case. Empty means the host name. The flag overrides the
	// file.
	HostnameOverride string `json:"hostnameOverride"`
	// nodeIPOverride replaces the primary IPs of the Node object, at most one of each family, the primary family's first.
	// Empty keeps those of the Node. No socket is bound to them.
	NodeIPOverride []string `json:"nodeIPOverride,omitempty"`
	// ipFamilyPolicy selects the IP families: PreferDualStack serves those that work, RequireDualStack fails without both,
	// SingleStack serves the primary one. Empty means PreferDualStack.
	IPFamilyPolicy IPFamilyPolicy `json:"ipFamilyPolicy"`

	// healthzBindAddress is the IP:port of the health check server (/healthz, /livez). The IP is [::] by default if the first
	// nodeIPOverride is an IPv6 address. "" disables the server.
	HealthzBindAddress string `json:"healthzBindAddress"`
	// metricsBindAddress is the IP:port of the metrics and status server. The IP is [::1] by default if the first
	// nodeIPOverride is an IPv6 address. "" disables the server.
	MetricsBindAddress string `json:"metricsBindAddress"`
	// bindAddressHardFail ends the process if one of the two servers cannot bind its address; false logs that and retries
	// twice a second.
	BindAddressHardFail bool `json:"bindAddressHardFail"`
	// enableProfiling serves /debug/pprof, and the page that sets the log level, on the metrics server.
	EnableProfiling bool `json:"enableProfiling"`
	// showHiddenMetricsForVersion shows the metrics that were hidden in that version, such as 1.36: the previous minor
	// version. Empty shows none.
	ShowHiddenMetricsForVersion string `json:"showHiddenMetricsForVersion"`

	// configHardFail refuses unknown and duplicate fields, and nodePortAddresses or CIDRs that lack an IP family in use.
	// false logs a warning and continues if possible, as with v1alpha1.
	ConfigHardFail bool `json:"configHardFail"`

	// mode is iptables or nftables on Linux; empty means iptables. kernelspace (Windows) and ipvs can be converted, not
	// started.
	Mode ProxyMode `json:"mode"`
	// syncPeriod is the maximum time until a failed sync is retried; after twice as long with a change that is not programmed,
	// /healthz and /livez fail. External changes of the rules are detected several times a second in any case. Greater than 0.
	SyncPeriod metav1.Duration `json:"syncPeriod"`
	// minSyncPeriod is the minimum time between two syncs; 0 is none. It does not delay the first change after an idle time, syncs
	// that use less than 5 % of a core in a minute, or the first repair of rules. At most syncPeriod.
	MinSyncPeriod metav1.Duration `json:"minSyncPeriod"`
	// configSyncPeriod has no effect. Greater than 0.
	ConfigSyncPeriod metav1.Duration `json:"configSyncPeriod"`

	// detectLocalMode is how traffic of this node's pods is detected: ClusterCIDR, NodeCIDR, BridgeInterface or
	// InterfaceNamePrefix. Empty means ClusterCIDR.
	DetectLocalMode LocalMode `json:"detectLocalMode"`
	// detectLocal holds the parameters of detectLocalMode.
	DetectLocal DetectLocalConfiguration `json:"detectLocal"`
	// nodePortAddresses are the CIDRs of the node's addresses that accept NodePort traffic, or primary (the Node's primary
	// IPs), localhost (127.0.0.0/8 and ::1/128), all. Empty means all in iptables mode and primary in nftables mode.
	NodePortAddresses []string `json:"nodePortAddresses,omitempty"`
	// connectionLimits bound the connections of each Service of a namespace on this node, in each IP family. Alpha: need the feature gate
	// ServiceLimits.
	ConnectionLimits []ConnectionLimits `json:"connectionLimits,omitempty"`

	// linux holds settings for Linux.
	Linux KubeProxyLinuxConfiguration `json:"linux"`
	// windows holds settings for Windows. It has no effect.
	Windows KubeProxyWindowsConfiguration `json:"windows"`

	// iptables holds settings of the iptables backend.
	IPTables KubeProxyIPTablesConfiguration `json:"iptables"`
	// ipvs holds settings of the ipvs backend, which this proxy does not have: they are kept, so that files can be converted.
	IPVS KubeProxyIPVSConfiguration `json:"ipvs"`
	// nftables holds settings of the nftables backend.
	NFTables KubeProxyNFTablesConfiguration `json:"nftables"`
	// winkernel holds settings of the Windows kernel backend. It has no effect.
	Winkernel KubeProxyWinkernelConfiguration `json:"winkernel"`
}

// ClientConnectionConfiguration configures the connection to the API server.
type ClientConnectionConfiguration struct {
	// kubeconfig is the path of a kubeconfig file. Empty, and without --master, means the pod's service account.
	Kubeconfig string `json:"kubeconfig"`
	// acceptContentTypes is the Accept header of requests that publish Events. Empty means client-go's default.
	AcceptContentTypes string `json:"acceptContentTypes"`
	// contentType is the media type of Events.
	ContentType string `json:"contentType"`
	// qps is the maximum of requests per second, on average. Negative means no limit, 0 the default.
	QPS float32 `json:"qps"`
	// burst is how many requests may exceed qps at once. 0 means the default.
	Burst int32 `json:"burst"`
}

// LoggingConfiguration configures logging.
type LoggingConfiguration struct {
	// format is text (klog's lines) or json (an object per line).
	Format string `json:"format"`
	// flushFrequency is the maximum time that a log line is buffered. Greater than 0.
	FlushFrequency metav1.Duration `json:"flushFrequency"`
	// verbosity is the level up to which messages are logged. Errors always are.
	Verbosity uint32 `json:"verbosity"`
	// vmodule raises the verbosity for single source files, with format text.
	VModule []VModuleItem `json:"vmodule,omitempty"`
	// options holds settings of single formats.
	Options LoggingOptions `json:"options"`
}

// VModuleItem sets the verbosity of the source files that match a pattern.
type VModuleItem struct {
	// filePattern is the base name of source files without ".go", or a glob, without "," and "=".
	FilePattern string `json:"filePattern"`
	// verbosity is the level up to which messages of these files are logged.
	Verbosity uint32 `json:"verbosity"`
}

// LoggingOptions holds settings of single log formats.
type LoggingOptions struct {
	// text sets the destination of lines in format text.
	Text LogRoutingOptions `json:"text"`
	// json sets the destination of lines in format json.
	JSON LogRoutingOptions `json:"json"`
}

// LogRoutingOptions sets the destination of the lines of one log format.
type LogRoutingOptions struct {
	// splitStream writes errors to standard error and the rest, buffered, to standard output; false writes both to one stream.
	// Alpha: needs the feature gate LoggingAlphaOptions.
	SplitStream bool `json:"splitStream"`
	// infoBufferSize is the size of that buffer in bytes, such as 512, 1Ki or 5M; 0 is none. Alpha as well.
	InfoBufferSize resource.QuantityValue `json:"infoBufferSize"`
}

// DetectLocalConfiguration holds the parameters for detecting local traffic.
type DetectLocalConfiguration struct {
	// clusterCIDRs are the ranges of all pods, at most one of each family, for mode ClusterCIDR. A family without one has no
	// local traffic.
	ClusterCIDRs []string `json:"clusterCIDRs,omitempty"`
	// bridgeInterface is the bridge of the local pods. Mode BridgeInterface needs it.
	BridgeInterface string `json:"bridgeInterface"`
	// interfaceNamePrefix is the prefix of the names of local pods' interfaces. Mode InterfaceNamePrefix needs it.
	InterfaceNamePrefix string `json:"interfaceNamePrefix"`
}

// ConnectionLimits bounds the connections of each Service of a namespace. The annotation kube-proxy/connection-limits of a Service can
// only lower them.
type ConnectionLimits struct {
	// namespace is the namespace; * means all that are not listed.
	Namespace string `json:"namespace"`
	// perSecond is the maximum of new connections of a Service in a second, up to 100000. 0 is no limit.
	PerSecond int32 `json:"perSecond"`
	// open is the maximum of open connections of a Service, up to 5000. 0 is no limit.
	Open int32 `json:"open"`
	// clientPerSecond is the maximum of new connections of a client to a Service in a second, up to 100000. 0 is no limit.
	ClientPerSecond int32 `json:"clientPerSecond"`
	// clientOpen is the maximum of open connections of a client to a Service, up to 5000. 0 is no limit.
	ClientOpen int32 `json:"clientOpen"`
}

// KubeProxyLinuxConfiguration holds settings for Linux.
type KubeProxyLinuxConfiguration struct {
	// conntrack sets the kernel's connection tracking at start.
	Conntrack KubeProxyConntrackConfiguration `json:"conntrack"`
	// masqueradeAll gives all traffic to cluster IPs the node's source address. Some pod networks need it.
	MasqueradeAll bool `json:"masqueradeAll"`
	// oomScoreAdj is the process's oom_score_adj, from -1000 (never killed) to 1000 (killed first).
	OOMScoreAdj int32 `json:"oomScoreAdj"`
}

// KubeProxyConntrackConfiguration configures the kernel's connection tracking.
type KubeProxyConntrackConfiguration struct {
	// maxPerCore is the limit of tracked connections for each CPU core, at most 1048576 in all. 0 keeps the kernel's limit,
	// and ignores min.
	MaxPerCore int32 `json:"maxPerCore"`
	// min is the minimum limit of tracked connections, whatever the number of cores.
	Min int32 `json:"min"`
	// tcpEstablishedTimeout is the timeout of idle TCP connections; 0 keeps the kernel's.
	TCPEstablishedTimeout metav1.Duration `json:"tcpEstablishedTimeout"`
	// tcpCloseWaitTimeout is the timeout of idle TCP connections in state CLOSE_WAIT; 0 keeps the kernel's.
	TCPCloseWaitTimeout metav1.Duration `json:"tcpCloseWaitTimeout"`
	// tcpBeLiberal does not mark TCP packets outside the window INVALID; false keeps the kernel's setting.
	TCPBeLiberal bool `json:"tcpBeLiberal"`
	// udpTimeout is the timeout of UDP flows without a reply; 0 keeps the kernel's.
	UDPTimeout metav1.Duration `json:"udpTimeout"`
	// udpStreamTimeout is the timeout of UDP flows with replies; 0 keeps the kernel's.
	UDPStreamTimeout metav1.Duration `json:"udpStreamTimeout"`
}

// KubeProxyWindowsConfiguration holds settings for Windows.
type KubeProxyWindowsConfiguration struct {
	// runAsService reports to the Windows service control manager (the flag --windows-service).
	RunAsService bool `json:"runAsService"`
}

// KubeProxyIPTablesConfiguration holds settings of the iptables backend.
type KubeProxyIPTablesConfiguration struct {
	// masqueradeBit is the bit of the packet mark, 0 to 31, that asks for masquerading.
	MasqueradeBit int32 `json:"masqueradeBit"`
	// localhostNodePorts accepts NodePort traffic to 127.0.0.1, which needs the sysctl route_localnet. IPv4 only.
	LocalhostNodePorts bool `json:"localhostNodePorts"`
}

// KubeProxyIPVSConfiguration holds settings of the ipvs backend, which this proxy does not have.
type KubeProxyIPVSConfiguration struct {
	// masqueradeBit is the bit of the packet mark, 0 to 31, that asks for masquerading. (In v1alpha1 it is in the iptables
	// section.)
	MasqueradeBit int32 `json:"masqueradeBit"`
	// scheduler is the name of the IPVS scheduler. Empty means rr.
	Scheduler string `json:"scheduler"`
	// excludeCIDRs are ranges whose virtual servers are kept by cleanup.
	ExcludeCIDRs []string `json:"excludeCIDRs,omitempty"`
	// strictARP answers ARP requests only on the interface that has the address.
	StrictARP bool `json:"strictARP"`
	// tcpTimeout is the timeout of idle TCP sessions; 0 keeps the kernel's.
	TCPTimeout metav1.Duration `json:"tcpTimeout"`
	// tcpFinTimeout is the timeout of TCP sessions after a FIN; 0 keeps the kernel's.
	TCPFinTimeout metav1.Duration `json:"tcpFinTimeout"`
	// udpTimeout is the timeout of idle UDP sessions; 0 keeps the kernel's.
	UDPTimeout metav1.Duration `json:"udpTimeout"`
}

// KubeProxyNFTablesConfiguration holds settings of the nftables backend.
type KubeProxyNFTablesConfiguration struct {
	// masqueradeBit is the bit of the packet mark, 0 to 31, that asks for masquerading.
	MasqueradeBit int32 `json:"masqueradeBit"`
	// fastPath is Annotated or All: the long connections of Services with the annotation kube-proxy/fast-path "true", or of all without "false",
	// take the kernel's fast path. Empty means Annotated. Alpha: All needs the feature gate FlowtableFastPath.
	FastPath FastPath `json:"fastPath,omitempty"`
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

// FastPath names the Services whose long connections take the fast path.
type FastPath string

// Services with a fast path.
const (
	FastPathAnnotated FastPath = "Annotated"
	FastPathAll       FastPath = "All"
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
