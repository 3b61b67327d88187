package v1alpha2

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// KubeProxyConfiguration configures one kube-proxy. The root holds what every backend and platform shares; what
// exists on one platform, or what one backend alone understands, has a section of its own.
type KubeProxyConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// featureGates switches features by name. A name that Kubernetes knows and this proxy does not need is
	// accepted with a warning; a name nobody knows is an error. docs/feature-gates.md lists them.
	FeatureGates map[string]bool `json:"featureGates,omitempty"`

	// clientConnection says how to reach the API server. Without a kubeconfig, and without --master, the
	// service account of the pod is used.
	ClientConnection ClientConnectionConfiguration `json:"clientConnection"`
	// logging chooses the form and the amount of log lines. Logging flags on the command line win over it.
	Logging LoggingConfiguration `json:"logging"`

	// hostnameOverride is the name of the Node this proxy runs on; it is trimmed and lower-cased. Empty means the
	// host name of the operating system. The flag --hostname-override wins over it.
	HostnameOverride string `json:"hostnameOverride"`
	// nodeIPOverride replaces the primary IPs that the Node object tells, at most one of each family; the first
	// one's family is the primary family. Empty means the Node object is believed. No socket is bound to them.
	NodeIPOverride []string `json:"nodeIPOverride,omitempty"`
	// ipFamilyPolicy tells how many IP families must be usable on this node: RequireDualStack makes a missing
	// family fatal, PreferDualStack serves what there is, and SingleStack serves the primary family only. Empty
	// behaves as PreferDualStack.
	IPFamilyPolicy IPFamilyPolicy `json:"ipFamilyPolicy"`

	// healthzBindAddress is the IP address and port of the health check server (/healthz, /livez). Left out, it is
	// 0.0.0.0:10256, or [::]:10256 if the first nodeIPOverride is an IPv6 address; a missing port is 10256. An
	// explicit "" switches the server off.
	HealthzBindAddress *string `json:"healthzBindAddress"`
	// metricsBindAddress is the IP address and port of the metrics and status server. Left out, it is
	// 127.0.0.1:10249, or [::1]:10249 if the first nodeIPOverride is an IPv6 address; a missing port is 10249. An
	// explicit "" switches the server off.
	MetricsBindAddress *string `json:"metricsBindAddress"`
	// bindAddressHardFail makes it fatal when one of the two servers cannot bind its address; false logs the
	// failure and tries again every 5 seconds. (v1alpha1's default is false.)
	BindAddressHardFail *bool `json:"bindAddressHardFail"`
	// enableProfiling serves /debug/pprof and the log level switch on the metrics server.
	EnableProfiling bool `json:"enableProfiling"`
	// showHiddenMetricsForVersion shows again the metrics that were hidden in that version, written as 1.36. Only the
	// previous minor version is accepted. Empty shows none.
	ShowHiddenMetricsForVersion string `json:"showHiddenMetricsForVersion"`

	// configHardFail makes an error in the configuration end the process: an unknown or duplicate field, and a
	// nodePortAddresses list or CIDR that has nothing for an IP family in use. false warns and goes on where that
	// is possible, as v1alpha1 does.
	ConfigHardFail *bool `json:"configHardFail"`

	// mode chooses the backend: iptables or nftables on Linux, kernelspace on Windows. ipvs is understood so
	// that such a file can be converted, but it cannot be started. Empty means iptables on Linux and
	// kernelspace on Windows.
	Mode ProxyMode `json:"mode"`
	// syncPeriod bounds the time after which a failed sync is tried again. A change that is not in force after twice as
	// long makes /healthz and /livez fail. Whether somebody altered the rules is looked at several times a second, whatever
	// it says. A duration greater than 0.
	SyncPeriod *metav1.Duration `json:"syncPeriod"`
	// minSyncPeriod bounds the rate of syncs: the least time from the end of one to the next. It never delays the first
	// change after a quiet time, nor changes that cost little: syncs may come earlier as long as these use less than 5 %
	// of a core in any minute. A duration; 0 means never hold back. It must not exceed syncPeriod.
	MinSyncPeriod *metav1.Duration `json:"minSyncPeriod"`
	// configSyncPeriod has no effect: no object is kept that could be gone through again. A duration greater than 0.
	ConfigSyncPeriod *metav1.Duration `json:"configSyncPeriod"`

	// detectLocalMode tells how traffic from pods of this node is recognised: ClusterCIDR, NodeCIDR,
	// BridgeInterface or InterfaceNamePrefix. Empty means ClusterCIDR.
	DetectLocalMode LocalMode `json:"detectLocalMode"`
	// detectLocal holds what the detectLocalMode in use needs to know.
	DetectLocal DetectLocalConfiguration `json:"detectLocal"`
	// nodePortAddresses lists the CIDRs and keywords whose addresses of this node accept NodePort traffic. Keywords
	// are primary (the Node's primary IPs), localhost (127.0.0.0/8 and ::1/128) and all (0.0.0.0/0 and ::/0), in
	// any mixture with CIDRs. Empty means all in iptables mode and primary in nftables mode.
	NodePortAddresses []string `json:"nodePortAddresses,omitempty"`

	// linux holds what exists on Linux only. It has no effect elsewhere.
	Linux KubeProxyLinuxConfiguration `json:"linux"`
	// windows holds what exists on Windows only. It is kept and checked, and has no effect elsewhere.
	Windows KubeProxyWindowsConfiguration `json:"windows"`

	// iptables holds what the iptables backend alone understands.
	IPTables KubeProxyIPTablesConfiguration `json:"iptables"`
	// ipvs holds what the ipvs backend alone understood. It is kept and, in ipvs mode, checked, so that a file can
	// be converted in both directions; this proxy has no ipvs backend.
	IPVS KubeProxyIPVSConfiguration `json:"ipvs"`
	// nftables holds what the nftables backend alone understands.
	NFTables KubeProxyNFTablesConfiguration `json:"nftables"`
	// winkernel holds what the Windows kernel backend alone understands. It is kept and has no effect elsewhere.
	Winkernel KubeProxyWinkernelConfiguration `json:"winkernel"`
}

// ClientConnectionConfiguration says how to reach the API server.
type ClientConnectionConfiguration struct {
	// kubeconfig is the path of a kubeconfig file. Empty means the service account of the pod.
	Kubeconfig string `json:"kubeconfig"`
	// acceptContentTypes is the Accept header of requests that publish Events. Empty leaves it to the client library. What
	// is watched is asked for in protobuf, or in JSON where the server has no other.
	AcceptContentTypes string `json:"acceptContentTypes"`
	// contentType is the media type in which Events are sent.
	ContentType string `json:"contentType"`
	// qps is the number of requests allowed in a second, on average; negative means no limit. 0 means the default.
	QPS float32 `json:"qps"`
	// burst is the number of requests allowed at once above qps. Not negative; 0 means the default.
	Burst int32 `json:"burst"`
}

// LoggingConfiguration chooses the form and the amount of log lines.
type LoggingConfiguration struct {
	// format is text (klog's lines) or json (an object a line).
	Format string `json:"format"`
	// flushFrequency is the longest time a log line may wait in a buffer. A duration greater than 0.
	FlushFrequency metav1.Duration `json:"flushFrequency"`
	// verbosity is the level up to which messages are logged; higher levels tell more. Errors are always logged.
	Verbosity uint32 `json:"verbosity"`
	// vmodule raises the verbosity for single source files. Only with format text.
	VModule []VModuleItem `json:"vmodule,omitempty"`
	// options holds what belongs to one format. Alpha: needs the feature gate LoggingAlphaOptions.
	Options LoggingOptions `json:"options"`
}

// VModuleItem sets the verbosity of the source files that match a pattern.
type VModuleItem struct {
	// filePattern is the base name of a source file without ".go", or a glob for such names; no comma, no "=".
	FilePattern string `json:"filePattern"`
	// verbosity is the level up to which messages of these files are logged.
	Verbosity uint32 `json:"verbosity"`
}

// LoggingOptions holds what belongs to one log format.
type LoggingOptions struct {
	// text routes the lines of format text. Alpha: needs the feature gate LoggingAlphaOptions.
	Text LogRoutingOptions `json:"text"`
	// json routes the lines of format json. Alpha: needs the feature gate LoggingAlphaOptions.
	JSON LogRoutingOptions `json:"json"`
}

// LogRoutingOptions tells where the lines of one log format go.
type LogRoutingOptions struct {
	// splitStream sends errors to standard error and all else, buffered, to standard output. false sends both to
	// one stream, unbuffered.
	SplitStream bool `json:"splitStream"`
	// infoBufferSize is the size of the buffer when streams are split, in bytes (512, 1Ki, 5M). 0 means no buffer.
	InfoBufferSize resource.QuantityValue `json:"infoBufferSize"`
}

// DetectLocalConfiguration holds what the ways to recognise local traffic need to know.
type DetectLocalConfiguration struct {
	// clusterCIDRs are the ranges that pods of the cluster have their addresses from, at most one of each family.
	// Used in mode ClusterCIDR, where a family without one has no local traffic.
	ClusterCIDRs []string `json:"clusterCIDRs,omitempty"`
	// bridgeInterface is the name of the bridge that traffic of local pods arrives on. Required in mode
	// BridgeInterface.
	BridgeInterface string `json:"bridgeInterface"`
	// interfaceNamePrefix is how the names of the interfaces begin that traffic of local pods arrives on. Required
	// in mode InterfaceNamePrefix.
	InterfaceNamePrefix string `json:"interfaceNamePrefix"`
}

// KubeProxyLinuxConfiguration holds what exists on Linux only.
type KubeProxyLinuxConfiguration struct {
	// conntrack sets the kernel's connection tracking at start.
	Conntrack KubeProxyConntrackConfiguration `json:"conntrack"`
	// masqueradeAll hides the source address of all traffic to cluster IPs behind the node's. Some pod networks
	// need it.
	MasqueradeAll bool `json:"masqueradeAll"`
	// oomScoreAdj is the oom_score_adj of the proxy's process: -1000 is never killed, 1000 is killed first.
	OOMScoreAdj *int32 `json:"oomScoreAdj"`
}

// KubeProxyConntrackConfiguration sets the kernel's connection tracking.
type KubeProxyConntrackConfiguration struct {
	// maxPerCore is how many connections are tracked for each CPU core, at most 1048576 in all. 0 leaves the
	// kernel's limit alone, whatever min says.
	MaxPerCore *int32 `json:"maxPerCore"`
	// min is the least number of connections that are tracked, however few cores there are.
	Min *int32 `json:"min"`
	// tcpEstablishedTimeout is how long an idle TCP connection is remembered. A duration; 0 leaves it alone.
	TCPEstablishedTimeout *metav1.Duration `json:"tcpEstablishedTimeout"`
	// tcpCloseWaitTimeout is how long an idle TCP connection in state CLOSE_WAIT is remembered. A duration; 0
	// leaves it alone.
	TCPCloseWaitTimeout *metav1.Duration `json:"tcpCloseWaitTimeout"`
	// tcpBeLiberal lets TCP packets outside of the window pass as valid instead of marking them INVALID. false
	// leaves the kernel's setting alone.
	TCPBeLiberal bool `json:"tcpBeLiberal"`
	// udpTimeout is how long a UDP flow that had no answer is remembered. A duration; 0 leaves it alone.
	UDPTimeout metav1.Duration `json:"udpTimeout"`
	// udpStreamTimeout is how long a UDP flow that had answers is remembered. A duration; 0 leaves it alone.
	UDPStreamTimeout metav1.Duration `json:"udpStreamTimeout"`
}

// KubeProxyWindowsConfiguration holds what exists on Windows only.
type KubeProxyWindowsConfiguration struct {
	// runAsService reports to the Windows service control manager (the flag --windows-service).
	RunAsService bool `json:"runAsService"`
}

// KubeProxyIPTablesConfiguration holds what the iptables backend alone understands.
type KubeProxyIPTablesConfiguration struct {
	// masqueradeBit is the bit of the packet mark, 0 to 31, that says a packet is to be masqueraded.
	MasqueradeBit *int32 `json:"masqueradeBit"`
	// localhostNodePorts accepts NodePort traffic to 127.0.0.1, which needs the sysctl route_localnet. IPv4 only.
	// (v1alpha1's default is true.)
	LocalhostNodePorts bool `json:"localhostNodePorts"`
}

// KubeProxyIPVSConfiguration holds what the ipvs backend alone understood.
type KubeProxyIPVSConfiguration struct {
	// masqueradeBit is the bit of the packet mark, 0 to 31, that says a packet is to be masqueraded. (v1alpha1 has
	// it in the iptables section.)
	MasqueradeBit *int32 `json:"masqueradeBit"`
	// scheduler is the name of the IPVS scheduler. Empty means rr.
	Scheduler string `json:"scheduler"`
	// excludeCIDRs are ranges whose virtual servers are left alone when cleaning up.
	ExcludeCIDRs []string `json:"excludeCIDRs,omitempty"`
	// strictARP answers ARP requests only on the interface that has the address.
	StrictARP bool `json:"strictARP"`
	// tcpTimeout is how long an idle TCP session is kept. A duration; 0 leaves the system's value alone.
	TCPTimeout metav1.Duration `json:"tcpTimeout"`
	// tcpFinTimeout is how long a TCP session is kept after a FIN. A duration; 0 leaves the system's value alone.
	TCPFinTimeout metav1.Duration `json:"tcpFinTimeout"`
	// udpTimeout is how long an idle UDP session is kept. A duration; 0 leaves the system's value alone.
	UDPTimeout metav1.Duration `json:"udpTimeout"`
}

// KubeProxyNFTablesConfiguration holds what the nftables backend alone understands.
type KubeProxyNFTablesConfiguration struct {
	// masqueradeBit is the bit of the packet mark, 0 to 31, that says a packet is to be masqueraded.
	MasqueradeBit *int32 `json:"masqueradeBit"`
}

// KubeProxyWinkernelConfiguration holds what the Windows kernel backend alone understands.
type KubeProxyWinkernelConfiguration struct {
	// networkName is the HNS network in which endpoints and policies are created.
	NetworkName string `json:"networkName"`
	// sourceVip is the address that load-balanced traffic is translated from.
	SourceVip string `json:"sourceVip"`
	// enableDSR lets answers go directly from the endpoint to the client.
	EnableDSR bool `json:"enableDSR"`
	// rootHnsEndpointName is the HNS endpoint that joins the root network namespace to the bridge.
	RootHnsEndpointName string `json:"rootHnsEndpointName"`
	// forwardHealthCheckVip forwards the service's virtual IP on its health check port.
	ForwardHealthCheckVip bool `json:"forwardHealthCheckVip"`
}

// ProxyMode names a backend.
type ProxyMode string

// LocalMode names a way to recognise local traffic.
type LocalMode string

// IPFamilyPolicy tells how many IP families must be usable.
type IPFamilyPolicy string
