package config

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/validation/field"
	componentconfig "k8s.io/component-base/config/v1alpha1"
	upstream "k8s.io/kube-proxy/config/v1alpha1"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"
)

// V1alpha1 is the name of the version that Kubernetes has. Its Go types come from k8s.io/kube-proxy/config/v1alpha1, and the proxy's flags set
// fields of them.
const V1alpha1 = "v1alpha1"

// fromV1alpha1 converts a configuration of v1alpha1 with defaults to the latest version. Shared settings are read from the section of the active
// mode; [droppedFrom] returns those of other sections. The result refers to the maps and lists of in.
func fromV1alpha1(in *upstream.KubeProxyConfiguration) *KubeProxyConfiguration {
	shared := sharedSettings(in)
	out := Default() // kind and version; everything else is set below, or does not exist in v1alpha1
	out.FeatureGates = in.FeatureGates
	out.ClientConnection = ClientConnectionConfiguration(in.ClientConnection)
	out.Logging = LoggingOf(&in.Logging)

	out.HostnameOverride = in.HostnameOverride
	if !unspecified(in.BindAddress) {
		out.NodeIPOverride = []string{in.BindAddress}
	}
	out.HealthzBindAddress = in.HealthzBindAddress
	out.MetricsBindAddress = in.MetricsBindAddress
	out.BindAddressHardFail = in.BindAddressHardFail
	out.EnableProfiling = in.EnableProfiling
	out.ShowHiddenMetricsForVersion = in.ShowHiddenMetricsForVersion
	out.ConfigHardFail = false // v1alpha1 has always continued with a warning

	out.Mode = ProxyMode(in.Mode)
	out.SyncPeriod, out.MinSyncPeriod = shared.syncPeriod, shared.minSyncPeriod
	out.ConfigSyncPeriod = in.ConfigSyncPeriod
	out.DetectLocalMode = LocalMode(in.DetectLocalMode)
	out.DetectLocal.BridgeInterface = in.DetectLocal.BridgeInterface
	out.DetectLocal.InterfaceNamePrefix = in.DetectLocal.InterfaceNamePrefix
	if in.ClusterCIDR != "" {
		out.DetectLocal.ClusterCIDRs = strings.Split(in.ClusterCIDR, ",")
	}
	out.NodePortAddresses = in.NodePortAddresses

	out.Linux = KubeProxyLinuxConfiguration{
		Conntrack: KubeProxyConntrackConfiguration{
			MaxPerCore:            ptr.Deref(in.Conntrack.MaxPerCore, 0),
			Min:                   ptr.Deref(in.Conntrack.Min, 0),
			TCPEstablishedTimeout: ptr.Deref(in.Conntrack.TCPEstablishedTimeout, metav1.Duration{}),
			TCPCloseWaitTimeout:   ptr.Deref(in.Conntrack.TCPCloseWaitTimeout, metav1.Duration{}),
			TCPBeLiberal:          in.Conntrack.TCPBeLiberal,
			UDPTimeout:            in.Conntrack.UDPTimeout,
			UDPStreamTimeout:      in.Conntrack.UDPStreamTimeout,
		},
		MasqueradeAll: shared.masqueradeAll,
		OOMScoreAdj:   ptr.Deref(in.OOMScoreAdj, 0),
	}
	out.Windows.RunAsService = in.WindowsRunAsService
	out.IPTables.MasqueradeBit = ptr.Deref(in.IPTables.MasqueradeBit, 0)
	out.IPTables.LocalhostNodePorts = ptr.Deref(in.IPTables.LocalhostNodePorts, false)
	out.IPVS = KubeProxyIPVSConfiguration{
		MasqueradeBit: out.IPTables.MasqueradeBit,
		Scheduler:     in.IPVS.Scheduler,
		ExcludeCIDRs:  in.IPVS.ExcludeCIDRs,
		StrictARP:     in.IPVS.StrictARP,
		TCPTimeout:    in.IPVS.TCPTimeout,
		TCPFinTimeout: in.IPVS.TCPFinTimeout,
		UDPTimeout:    in.IPVS.UDPTimeout,
	}
	out.NFTables.MasqueradeBit = ptr.Deref(in.NFTables.MasqueradeBit, 0)
	out.Winkernel = KubeProxyWinkernelConfiguration(in.Winkernel)
	out.Complete()
	return out
}

// shared are the settings that each backend's section of v1alpha1 repeats.
type shared struct {
	syncPeriod    metav1.Duration
	minSyncPeriod metav1.Duration
	masqueradeAll bool
	section       string // the section with the periods
}

// sharedSettings reads the section of the active mode; that of iptables if the mode is empty or has no section. ipvs
// uses masqueradeAll of the iptables section.
func sharedSettings(in *upstream.KubeProxyConfiguration) shared {
	ipt, ipvs, nft := &in.IPTables, &in.IPVS, &in.NFTables
	switch ProxyMode(in.Mode) {
	case ProxyModeIPVS:
		return shared{ipvs.SyncPeriod, ipvs.MinSyncPeriod, ipt.MasqueradeAll, "ipvs"}
	case ProxyModeNFTables:
		return shared{nft.SyncPeriod, nft.MinSyncPeriod, nft.MasqueradeAll, "nftables"}
	default:
		return shared{ipt.SyncPeriod, ipt.MinSyncPeriod, ipt.MasqueradeAll, "iptables"}
	}
}

// unspecified reports whether a bindAddress overrides nothing: empty, 0.0.0.0 or ::.
func unspecified(address string) bool {
	ip := netutils.ParseIPSloppy(address)
	return address == "" || (ip != nil && ip.IsUnspecified())
}

// toV1alpha1 converts a configuration to v1alpha1. It writes the shared settings into the section of each backend, so that they
// apply to any mode. [MissingInV1alpha1] returns what v1alpha1 cannot express. The result refers to the maps and lists of in.
func toV1alpha1(in *KubeProxyConfiguration) *upstream.KubeProxyConfiguration {
	bit := in.IPTables.MasqueradeBit
	if in.Mode == ProxyModeIPVS {
		bit = in.IPVS.MasqueradeBit
	}
	minimum := in.MinSyncPeriod
	if minimum.Duration == 0 {
		// Here 0 means the default of 1s; the shortest possible duration behaves as 0 does.
		minimum.Duration = time.Nanosecond
	}
	bindAddress := "0.0.0.0"
	if len(in.NodeIPOverride) > 0 {
		bindAddress = in.NodeIPOverride[0]
	}
	return &upstream.KubeProxyConfiguration{
		TypeMeta:         metav1.TypeMeta{APIVersion: GroupName + "/" + V1alpha1, Kind: Kind},
		FeatureGates:     in.FeatureGates,
		ClientConnection: componentconfig.ClientConnectionConfiguration(in.ClientConnection),
		Logging:          *in.Logging.Shared(),

		HostnameOverride:            in.HostnameOverride,
		BindAddress:                 bindAddress,
		HealthzBindAddress:          in.HealthzBindAddress,
		MetricsBindAddress:          in.MetricsBindAddress,
		BindAddressHardFail:         in.BindAddressHardFail,
		EnableProfiling:             in.EnableProfiling,
		ShowHiddenMetricsForVersion: in.ShowHiddenMetricsForVersion,

		Mode: upstream.ProxyMode(in.Mode),
		IPTables: upstream.KubeProxyIPTablesConfiguration{
			MasqueradeBit: &bit, MasqueradeAll: in.Linux.MasqueradeAll, LocalhostNodePorts: new(in.IPTables.LocalhostNodePorts),
			SyncPeriod: in.SyncPeriod, MinSyncPeriod: minimum,
		},
		IPVS: upstream.KubeProxyIPVSConfiguration{
			SyncPeriod: in.SyncPeriod, MinSyncPeriod: in.MinSyncPeriod,
			Scheduler: in.IPVS.Scheduler, ExcludeCIDRs: in.IPVS.ExcludeCIDRs, StrictARP: in.IPVS.StrictARP,
			TCPTimeout: in.IPVS.TCPTimeout, TCPFinTimeout: in.IPVS.TCPFinTimeout, UDPTimeout: in.IPVS.UDPTimeout,
		},
		NFTables: upstream.KubeProxyNFTablesConfiguration{
			MasqueradeBit: new(in.NFTables.MasqueradeBit), MasqueradeAll: in.Linux.MasqueradeAll,
			SyncPeriod: in.SyncPeriod, MinSyncPeriod: minimum,
		},
		Winkernel: upstream.KubeProxyWinkernelConfiguration(in.Winkernel),

		DetectLocalMode: upstream.LocalMode(in.DetectLocalMode),
		DetectLocal: upstream.DetectLocalConfiguration{
			BridgeInterface: in.DetectLocal.BridgeInterface, InterfaceNamePrefix: in.DetectLocal.InterfaceNamePrefix,
		},
		ClusterCIDR:       strings.Join(in.DetectLocal.ClusterCIDRs, ","),
		NodePortAddresses: in.NodePortAddresses,

		OOMScoreAdj: new(in.Linux.OOMScoreAdj),
		Conntrack: upstream.KubeProxyConntrackConfiguration{
			MaxPerCore: new(in.Linux.Conntrack.MaxPerCore), Min: new(in.Linux.Conntrack.Min),
			TCPEstablishedTimeout: new(in.Linux.Conntrack.TCPEstablishedTimeout), TCPCloseWaitTimeout: new(in.Linux.Conntrack.TCPCloseWaitTimeout),
			TCPBeLiberal: in.Linux.Conntrack.TCPBeLiberal, UDPTimeout: in.Linux.Conntrack.UDPTimeout, UDPStreamTimeout: in.Linux.Conntrack.UDPStreamTimeout,
		},
		ConfigSyncPeriod:    in.ConfigSyncPeriod,
		WindowsRunAsService: in.Windows.RunAsService,
	}
}

// validateV1alpha1 checks the fields of v1alpha1 that do not exist in the latest version.
func validateV1alpha1(in *upstream.KubeProxyConfiguration) field.ErrorList {
	var errs field.ErrorList
	if _, err := utilnet.ParsePortRange(in.PortRange); err != nil {
		errs = append(errs, field.Invalid(field.NewPath("portRange"), in.PortRange, "must be a range of ports, such as 10000-20000"))
	}
	return errs
}
