package v1alpha1

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	componentconfig "k8s.io/component-base/config/v1alpha1"
	upstream "k8s.io/kube-proxy/config/v1alpha1"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
)

// ToLatest converts a configuration with defaults to the latest version. Shared settings are read from the section of the active
// mode; [Dropped] returns those of other sections. The result refers to the maps and lists of in.
func ToLatest(in *upstream.KubeProxyConfiguration) *config.KubeProxyConfiguration {
	shared := sharedSettings(in)
	out := config.Default() // kind and version; everything else is set below, or does not exist in this version
	out.FeatureGates = in.FeatureGates
	out.ClientConnection = config.ClientConnectionConfiguration(in.ClientConnection)
	out.Logging = config.LoggingOf(&in.Logging)

	out.HostnameOverride = in.HostnameOverride
	if !unspecified(in.BindAddress) {
		out.NodeIPOverride = []string{in.BindAddress}
	}
	out.HealthzBindAddress = in.HealthzBindAddress
	out.MetricsBindAddress = in.MetricsBindAddress
	out.BindAddressHardFail = in.BindAddressHardFail
	out.EnableProfiling = in.EnableProfiling
	out.ShowHiddenMetricsForVersion = in.ShowHiddenMetricsForVersion
	out.ConfigHardFail = false // this version has always continued with a warning

	out.Mode = config.ProxyMode(in.Mode)
	out.SyncPeriod, out.MinSyncPeriod = shared.syncPeriod, shared.minSyncPeriod
	out.ConfigSyncPeriod = in.ConfigSyncPeriod
	out.DetectLocalMode = config.LocalMode(in.DetectLocalMode)
	out.DetectLocal.BridgeInterface = in.DetectLocal.BridgeInterface
	out.DetectLocal.InterfaceNamePrefix = in.DetectLocal.InterfaceNamePrefix
	if in.ClusterCIDR != "" {
		out.DetectLocal.ClusterCIDRs = strings.Split(in.ClusterCIDR, ",")
	}
	out.NodePortAddresses = in.NodePortAddresses

	out.Linux = config.KubeProxyLinuxConfiguration{
		Conntrack: config.KubeProxyConntrackConfiguration{
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
	out.IPVS = config.KubeProxyIPVSConfiguration{
		MasqueradeBit: out.IPTables.MasqueradeBit,
		Scheduler:     in.IPVS.Scheduler,
		ExcludeCIDRs:  in.IPVS.ExcludeCIDRs,
		StrictARP:     in.IPVS.StrictARP,
		TCPTimeout:    in.IPVS.TCPTimeout,
		TCPFinTimeout: in.IPVS.TCPFinTimeout,
		UDPTimeout:    in.IPVS.UDPTimeout,
	}
	out.NFTables.MasqueradeBit = ptr.Deref(in.NFTables.MasqueradeBit, 0)
	out.Winkernel = config.KubeProxyWinkernelConfiguration(in.Winkernel)
	out.Complete()
	return out
}

// shared are the settings that each backend's section of this version repeats.
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
	switch config.ProxyMode(in.Mode) {
	case config.ProxyModeIPVS:
		return shared{ipvs.SyncPeriod, ipvs.MinSyncPeriod, ipt.MasqueradeAll, "ipvs"}
	case config.ProxyModeNFTables:
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

// FromLatest converts a configuration to this version. It writes the shared settings into the section of each backend, so that they
// apply to any mode. [MissingIn] returns what this version cannot express. The result refers to the maps and lists of in.
func FromLatest(in *config.KubeProxyConfiguration) *upstream.KubeProxyConfiguration {
	bit := in.IPTables.MasqueradeBit
	if in.Mode == config.ProxyModeIPVS {
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
		TypeMeta:         metav1.TypeMeta{APIVersion: config.GroupName + "/" + Version, Kind: config.Kind},
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
