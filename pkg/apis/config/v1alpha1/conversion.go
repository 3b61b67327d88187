package v1alpha1

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	upstream "k8s.io/kube-proxy/config/v1alpha1"
	netutils "k8s.io/utils/net"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
)

// Convert_v1alpha1_KubeProxyConfiguration_To_config_KubeProxyConfiguration converts fields with another path. Shared
// settings are read from the section of the active mode.
func Convert_v1alpha1_KubeProxyConfiguration_To_config_KubeProxyConfiguration(in *upstream.KubeProxyConfiguration, out *config.KubeProxyConfiguration, s conversion.Scope) error {
	if err := autoConvert_v1alpha1_KubeProxyConfiguration_To_config_KubeProxyConfiguration(in, out, s); err != nil {
		return err
	}
	if err := Convert_v1alpha1_KubeProxyConntrackConfiguration_To_config_KubeProxyConntrackConfiguration(&in.Conntrack, &out.Linux.Conntrack, s); err != nil {
		return err
	}
	if err := metav1.Convert_Pointer_int32_To_int32(&in.OOMScoreAdj, &out.Linux.OOMScoreAdj, s); err != nil {
		return err
	}
	if err := metav1.Convert_Pointer_int32_To_int32(&in.IPTables.MasqueradeBit, &out.IPVS.MasqueradeBit, s); err != nil {
		return err
	}

	shared := sharedSettings(in)
	out.SyncPeriod.Duration = shared.syncPeriod
	out.MinSyncPeriod.Duration = shared.minSyncPeriod
	out.Linux.MasqueradeAll = shared.masqueradeAll

	if in.ClusterCIDR != "" {
		out.DetectLocal.ClusterCIDRs = strings.Split(in.ClusterCIDR, ",")
	}
	if !unspecified(in.BindAddress) {
		out.NodeIPOverride = []string{in.BindAddress}
	}
	out.Windows.RunAsService = in.WindowsRunAsService
	// This version has always continued with a warning.
	out.ConfigHardFail = false
	return nil
}

// shared are the settings that each backend's section of this version repeats.
type shared struct {
	syncPeriod    time.Duration
	minSyncPeriod time.Duration
	masqueradeAll bool
	section       string // the section with the periods
}

// sharedSettings reads the section of the active mode; that of iptables if the mode is empty or has no section. ipvs
// uses masqueradeAll of the iptables section.
func sharedSettings(in *upstream.KubeProxyConfiguration) shared {
	ipt, ipvs, nft := &in.IPTables, &in.IPVS, &in.NFTables
	switch config.ProxyMode(in.Mode) {
	case config.ProxyModeIPVS:
		return shared{ipvs.SyncPeriod.Duration, ipvs.MinSyncPeriod.Duration, ipt.MasqueradeAll, "ipvs"}
	case config.ProxyModeNFTables:
		return shared{nft.SyncPeriod.Duration, nft.MinSyncPeriod.Duration, nft.MasqueradeAll, "nftables"}
	default:
		return shared{ipt.SyncPeriod.Duration, ipt.MinSyncPeriod.Duration, ipt.MasqueradeAll, "iptables"}
	}
}

// unspecified reports whether a bindAddress overrides nothing: empty, 0.0.0.0 or ::.
func unspecified(address string) bool {
	ip := netutils.ParseIPSloppy(address)
	return address == "" || (ip != nil && ip.IsUnspecified())
}

// Convert_config_KubeProxyConfiguration_To_v1alpha1_KubeProxyConfiguration writes the shared settings into the section
// of each backend, so that they apply to any mode. MissingIn returns what this version cannot express.
func Convert_config_KubeProxyConfiguration_To_v1alpha1_KubeProxyConfiguration(in *config.KubeProxyConfiguration, out *upstream.KubeProxyConfiguration, s conversion.Scope) error {
	if err := autoConvert_config_KubeProxyConfiguration_To_v1alpha1_KubeProxyConfiguration(in, out, s); err != nil {
		return err
	}
	if err := Convert_config_KubeProxyConntrackConfiguration_To_v1alpha1_KubeProxyConntrackConfiguration(&in.Linux.Conntrack, &out.Conntrack, s); err != nil {
		return err
	}
	if err := metav1.Convert_int32_To_Pointer_int32(&in.Linux.OOMScoreAdj, &out.OOMScoreAdj, s); err != nil {
		return err
	}
	bit := &in.IPTables.MasqueradeBit
	if in.Mode == config.ProxyModeIPVS {
		bit = &in.IPVS.MasqueradeBit
	}
	if err := metav1.Convert_int32_To_Pointer_int32(bit, &out.IPTables.MasqueradeBit, s); err != nil {
		return err
	}

	out.IPTables.SyncPeriod, out.NFTables.SyncPeriod, out.IPVS.SyncPeriod = in.SyncPeriod, in.SyncPeriod, in.SyncPeriod
	out.IPVS.MinSyncPeriod = in.MinSyncPeriod
	minimum := in.MinSyncPeriod
	if minimum.Duration == 0 {
		// Here 0 means the default of 1s; the shortest possible duration behaves as 0 does.
		minimum.Duration = time.Nanosecond
	}
	out.IPTables.MinSyncPeriod, out.NFTables.MinSyncPeriod = minimum, minimum
	out.IPTables.MasqueradeAll, out.NFTables.MasqueradeAll = in.Linux.MasqueradeAll, in.Linux.MasqueradeAll

	out.ClusterCIDR = strings.Join(in.DetectLocal.ClusterCIDRs, ",")
	out.BindAddress = "0.0.0.0"
	if len(in.NodeIPOverride) > 0 {
		out.BindAddress = in.NodeIPOverride[0]
	}
	out.WindowsRunAsService = in.Windows.RunAsService
	return nil
}

// Convert_v1alpha1_KubeProxyIPTablesConfiguration_To_config_KubeProxyIPTablesConfiguration converts the settings of
// iptables mode only.
func Convert_v1alpha1_KubeProxyIPTablesConfiguration_To_config_KubeProxyIPTablesConfiguration(in *upstream.KubeProxyIPTablesConfiguration, out *config.KubeProxyIPTablesConfiguration, s conversion.Scope) error {
	return autoConvert_v1alpha1_KubeProxyIPTablesConfiguration_To_config_KubeProxyIPTablesConfiguration(in, out, s)
}

// Convert_v1alpha1_KubeProxyIPVSConfiguration_To_config_KubeProxyIPVSConfiguration converts the settings of ipvs mode
// only; its masqueradeBit is in the iptables section.
func Convert_v1alpha1_KubeProxyIPVSConfiguration_To_config_KubeProxyIPVSConfiguration(in *upstream.KubeProxyIPVSConfiguration, out *config.KubeProxyIPVSConfiguration, s conversion.Scope) error {
	return autoConvert_v1alpha1_KubeProxyIPVSConfiguration_To_config_KubeProxyIPVSConfiguration(in, out, s)
}

// Convert_config_KubeProxyIPVSConfiguration_To_v1alpha1_KubeProxyIPVSConfiguration converts the settings of ipvs mode only.
func Convert_config_KubeProxyIPVSConfiguration_To_v1alpha1_KubeProxyIPVSConfiguration(in *config.KubeProxyIPVSConfiguration, out *upstream.KubeProxyIPVSConfiguration, s conversion.Scope) error {
	return autoConvert_config_KubeProxyIPVSConfiguration_To_v1alpha1_KubeProxyIPVSConfiguration(in, out, s)
}

// Convert_v1alpha1_KubeProxyNFTablesConfiguration_To_config_KubeProxyNFTablesConfiguration converts the settings of
// nftables mode only.
func Convert_v1alpha1_KubeProxyNFTablesConfiguration_To_config_KubeProxyNFTablesConfiguration(in *upstream.KubeProxyNFTablesConfiguration, out *config.KubeProxyNFTablesConfiguration, s conversion.Scope) error {
	return autoConvert_v1alpha1_KubeProxyNFTablesConfiguration_To_config_KubeProxyNFTablesConfiguration(in, out, s)
}

// Convert_config_DetectLocalConfiguration_To_v1alpha1_DetectLocalConfiguration converts the fields with the same path;
// the cluster CIDRs are in the root.
func Convert_config_DetectLocalConfiguration_To_v1alpha1_DetectLocalConfiguration(in *config.DetectLocalConfiguration, out *upstream.DetectLocalConfiguration, s conversion.Scope) error {
	return autoConvert_config_DetectLocalConfiguration_To_v1alpha1_DetectLocalConfiguration(in, out, s)
}
