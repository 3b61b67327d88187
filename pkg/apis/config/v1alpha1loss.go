package config

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	upstream "k8s.io/kube-proxy/config/v1alpha1"
)

// Loss is a setting that a conversion cannot preserve.
type Loss struct {
	// Field is the path of the setting in the original version.
	Field string
	// Detail describes the result and its reason.
	Detail string
}

// String returns one line.
func (l Loss) String() string { return l.Field + ": " + l.Detail }

// droppedFrom returns the settings of a file of v1alpha1, before its defaults are filled in, that the latest version
// does not keep: portRange, and values in sections of inactive modes that differ from the active one's. A zero there
// counts as missing, because programs that write such files (kubeadm) write every field.
func droppedFrom(in *upstream.KubeProxyConfiguration) []Loss {
	var losses []Loss
	if in.PortRange != "" {
		losses = append(losses, Loss{Field: "portRange", Detail: "dropped; it has had no effect for years"})
	}

	defaulted := in.DeepCopy()
	setV1alpha1Defaults(defaulted)
	kept := sharedSettings(defaulted)
	mode := cmp.Or(in.Mode, upstream.ProxyMode(DefaultProxyMode))
	lose := func(field string, value, keep any) {
		losses = append(losses, Loss{Field: field,
			Detail: fmt.Sprintf("%v dropped; all modes share one setting, and mode %s has %v", value, mode, keep)})
	}
	period := func(section, name string, value, keep time.Duration) {
		if section != kept.section && value != 0 && value != keep {
			lose(section+"."+name, value, keep)
		}
	}
	period("iptables", "syncPeriod", in.IPTables.SyncPeriod.Duration, kept.syncPeriod.Duration)
	period("iptables", "minSyncPeriod", in.IPTables.MinSyncPeriod.Duration, kept.minSyncPeriod.Duration)
	period("ipvs", "syncPeriod", in.IPVS.SyncPeriod.Duration, kept.syncPeriod.Duration)
	period("ipvs", "minSyncPeriod", in.IPVS.MinSyncPeriod.Duration, kept.minSyncPeriod.Duration)
	period("nftables", "syncPeriod", in.NFTables.SyncPeriod.Duration, kept.syncPeriod.Duration)
	period("nftables", "minSyncPeriod", in.NFTables.MinSyncPeriod.Duration, kept.minSyncPeriod.Duration)
	if in.IPTables.MasqueradeAll && !kept.masqueradeAll {
		lose("iptables.masqueradeAll", true, false)
	}
	if in.NFTables.MasqueradeAll && !kept.masqueradeAll {
		lose("nftables.masqueradeAll", true, false)
	}
	return losses
}

// MissingInV1alpha1 returns the settings of a configuration that v1alpha1 cannot express, by their names in v1alpha2.
func MissingInV1alpha1(in *KubeProxyConfiguration) []Loss {
	var losses []Loss
	lose := func(is bool, field, format string, args ...any) {
		if is {
			losses = append(losses, Loss{Field: field, Detail: fmt.Sprintf(format, args...)})
		}
	}
	const noServer = "the server cannot be disabled in v1alpha1; it listens on its default address"
	lose(len(in.NodeIPOverride) > 1, "nodeIPOverride", "only %s is kept, as bindAddress, which is one address", strings.Join(in.NodeIPOverride[:min(1, len(in.NodeIPOverride))], ""))
	lose(in.IPFamilyPolicy != "", "ipFamilyPolicy", "%s dropped; v1alpha1 serves the families that work", in.IPFamilyPolicy)
	lose(len(in.ConnectionLimits) > 0, "connectionLimits", "dropped; v1alpha1 has none")
	lose(in.NFTables.FastPath != "", "nftables.fastPath", "%s dropped; v1alpha1 has none", in.NFTables.FastPath)
	lose(in.ConfigHardFail, "configHardFail", "true dropped; v1alpha1 logs a warning and continues")
	lose(in.HealthzBindAddress == "", "healthzBindAddress", noServer)
	lose(in.MetricsBindAddress == "", "metricsBindAddress", noServer)
	lose(in.MinSyncPeriod.Duration == 0 && in.Mode != ProxyModeIPVS, "minSyncPeriod", "0s is written as 1ns, which behaves alike; in v1alpha1 0s means the default of 1s")
	ipt, ipvs := in.IPTables.MasqueradeBit, in.IPVS.MasqueradeBit
	lose(ipt != ipvs && in.Mode == ProxyModeIPVS, "iptables.masqueradeBit", "%d dropped; iptables and ipvs share one bit in v1alpha1, and mode ipvs has %d", ipt, ipvs)
	lose(ipt != ipvs && in.Mode != ProxyModeIPVS, "ipvs.masqueradeBit", "%d dropped; iptables and ipvs share one bit in v1alpha1, and the iptables section has %d", ipvs, ipt)
	return losses
}
