package config

import (
	"fmt"
	"net"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
	baseversion "k8s.io/component-base/version"
	netutils "k8s.io/utils/net"
)

// Validate returns all errors, with the paths of v1alpha2; File.Check translates them to lines and to the file's version. It
// checks every field, on any platform: settings of another platform or of an inactive backend are checked as in v1alpha1. Feature
// gates are checked by pkg/features; gate only unlocks fields.
func Validate(cfg *KubeProxyConfiguration, gate featuregate.FeatureGate) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, validateClient(cfg)...)
	errs = append(errs, logsapi.Validate(cfg.Logging.Shared(), gate, field.NewPath("logging"))...)
	errs = append(errs, validateNode(cfg)...)
	errs = append(errs, validateServers(cfg)...)
	errs = append(errs, validateMode(cfg)...)
	errs = append(errs, validatePeriods(cfg)...)
	errs = append(errs, validateDetectLocal(cfg)...)
	errs = append(errs, validateNodePortAddresses(cfg.NodePortAddresses, field.NewPath("nodePortAddresses"))...)
	errs = append(errs, validateConnectionLimits(cfg.ConnectionLimits, field.NewPath("connectionLimits"))...)
	errs = append(errs, validateLinux(&cfg.Linux, field.NewPath("linux"))...)
	errs = append(errs, validateBackends(cfg)...)
	return errs
}

// GatedField is a field that is used, and the feature gate that it needs.
type GatedField struct {
	Path *field.Path
	Gate string
}

// GatedFields returns the fields in use that need alpha feature gates, with the paths of v1alpha2.
func GatedFields(cfg *KubeProxyConfiguration) (used []GatedField) {
	if len(cfg.ConnectionLimits) > 0 {
		used = append(used, GatedField{field.NewPath("connectionLimits"), "ServiceLimits"})
	}
	if cfg.HasFastPath() && cfg.NFTables.FastPath == FastPathAll {
		used = append(used, GatedField{field.NewPath("nftables", "fastPath"), "FlowtableFastPath"})
	}
	return used
}

func validateClient(cfg *KubeProxyConfiguration) field.ErrorList {
	return notNegative(int64(cfg.ClientConnection.Burst), field.NewPath("clientConnection", "burst"))
}

// validateNode checks the settings about the node.
func validateNode(cfg *KubeProxyConfiguration) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("nodeIPOverride")
	first := map[netutils.IPFamily]string{}
	for i, address := range cfg.NodeIPOverride {
		ip := netutils.ParseIPSloppy(address)
		family := netutils.IPFamilyOf(ip)
		switch {
		case ip == nil:
			errs = append(errs, field.Invalid(path.Index(i), address, "must be an IP address"))
		case ip.IsUnspecified():
			errs = append(errs, field.Invalid(path.Index(i), address, "must be an address of this node; or leave the list empty"))
		case first[family] != "":
			errs = append(errs, field.Invalid(path.Index(i), address, fmt.Sprintf("at most one IPv%s address; the list already has %s", family, first[family])))
		default:
			first[family] = address
		}
	}
	policies := []IPFamilyPolicy{IPFamilyPolicySingleStack, IPFamilyPolicyPreferDualStack, IPFamilyPolicyRequireDualStack}
	return append(errs, oneOf(cfg.IPFamilyPolicy, policies, field.NewPath("ipFamilyPolicy"))...)
}

// validateServers checks the addresses of the two servers, and showHiddenMetricsForVersion.
func validateServers(cfg *KubeProxyConfiguration) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, validateAddress(cfg.HealthzBindAddress, field.NewPath("healthzBindAddress"))...)
	errs = append(errs, validateAddress(cfg.MetricsBindAddress, field.NewPath("metricsBindAddress"))...)

	previous := version.MustParseGeneric(baseversion.DefaultKubeBinaryVersion).SubtractMinor(1).String()
	if shown := cfg.ShowHiddenMetricsForVersion; shown != "" && shown != previous {
		errs = append(errs, field.Invalid(field.NewPath("showHiddenMetricsForVersion"), shown,
			fmt.Sprintf("only the previous minor version, %s, can be shown", previous)))
	}
	return errs
}

// validateAddress checks IP:port; empty disables the server.
func validateAddress(address string, path *field.Path) field.ErrorList {
	if address == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return field.ErrorList{field.Invalid(path, address, "must be IP:port, such as 0.0.0.0:10256 or [::]:10256")}
	}
	var errs field.ErrorList
	if netutils.ParseIPSloppy(host) == nil {
		errs = append(errs, field.Invalid(path, address, fmt.Sprintf("%q must be an IP address", host)))
	}
	if number, err := strconv.Atoi(port); err != nil || number < 1 || number > 65535 {
		errs = append(errs, field.Invalid(path, address, fmt.Sprintf("port %q must be a number from 1 to 65535", port)))
	}
	return errs
}

func validateMode(cfg *KubeProxyConfiguration) field.ErrorList {
	modes := append(ServedModes(), ProxyModeIPVS, ProxyModeKernelspace)
	return oneOf(cfg.Mode, modes, field.NewPath("mode"))
}

func validatePeriods(cfg *KubeProxyConfiguration) field.ErrorList {
	errs := positive(cfg.SyncPeriod, field.NewPath("syncPeriod"))
	errs = append(errs, notNegativeDuration(cfg.MinSyncPeriod, field.NewPath("minSyncPeriod"))...)
	errs = append(errs, positive(cfg.ConfigSyncPeriod, field.NewPath("configSyncPeriod"))...)
	if cfg.MinSyncPeriod.Duration > cfg.SyncPeriod.Duration {
		errs = append(errs, field.Invalid(field.NewPath("minSyncPeriod"), cfg.MinSyncPeriod.Duration.String(),
			fmt.Sprintf("must not be greater than syncPeriod, which is %s", cfg.SyncPeriod.Duration)))
	}
	return errs
}

// validateDetectLocal checks the parameters of the selected mode; the others have no effect.
func validateDetectLocal(cfg *KubeProxyConfiguration) field.ErrorList {
	path := field.NewPath("detectLocal")
	switch cfg.DetectLocalMode {
	case LocalModeBridgeInterface:
		return required(cfg.DetectLocal.BridgeInterface, path.Child("bridgeInterface"), "needed in detectLocalMode BridgeInterface")
	case LocalModeInterfaceNamePrefix:
		return required(cfg.DetectLocal.InterfaceNamePrefix, path.Child("interfaceNamePrefix"), "needed in detectLocalMode InterfaceNamePrefix")
	case LocalModeClusterCIDR, "":
		return validateClusterCIDRs(cfg.DetectLocal.ClusterCIDRs, path.Child("clusterCIDRs"))
	}
	modes := []LocalMode{LocalModeClusterCIDR, LocalModeNodeCIDR, LocalModeBridgeInterface, LocalModeInterfaceNamePrefix}
	return oneOf(cfg.DetectLocalMode, modes, field.NewPath("detectLocalMode"))
}

func validateClusterCIDRs(cidrs []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	first := map[netutils.IPFamily]string{}
	for i, cidr := range cidrs {
		_, network, err := netutils.ParseCIDRSloppy(cidr)
		family := netutils.IPFamilyOfCIDR(network)
		switch {
		case err != nil:
			errs = append(errs, field.Invalid(path.Index(i), cidr, "must be a CIDR, such as 10.244.0.0/16 or fd00:10:244::/56"))
		case first[family] != "":
			errs = append(errs, field.Invalid(path.Index(i), cidr, fmt.Sprintf("at most one IPv%s CIDR; the list already has %s", family, first[family])))
		default:
			first[family] = cidr
		}
	}
	return errs
}

func validateNodePortAddresses(entries []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, entry := range entries {
		switch entry {
		case NodePortAddressesPrimary, NodePortAddressesLocalhost, NodePortAddressesAll:
			continue
		}
		if _, _, err := netutils.ParseCIDRSloppy(entry); err != nil {
			errs = append(errs, field.Invalid(path.Index(i), entry, "must be a CIDR or one of primary, localhost, all"))
		}
	}
	return errs
}

// maxRate and maxOpen are cluster.MaxRate and cluster.MaxOpen.
const (
	maxRate = 100_000
	maxOpen = 5_000
)

func validateConnectionLimits(all []ConnectionLimits, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	listed := map[string]bool{}
	for i, limits := range all {
		at := path.Index(i)
		if limits.Namespace != "*" {
			for _, problem := range validation.IsDNS1123Label(limits.Namespace) {
				errs = append(errs, field.Invalid(at.Child("namespace"), limits.Namespace, "must be a namespace, or * for all that are not listed: "+problem))
			}
		}
		if listed[limits.Namespace] {
			errs = append(errs, field.Duplicate(at.Child("namespace"), limits.Namespace))
		}
		listed[limits.Namespace] = true
		for _, limit := range []struct {
			name       string
			value, max int32
		}{{"perSecond", limits.PerSecond, maxRate}, {"open", limits.Open, maxOpen}, {"clientPerSecond", limits.ClientPerSecond, maxRate}, {"clientOpen", limits.ClientOpen, maxOpen}} {
			if limit.value < 0 || limit.value > limit.max {
				errs = append(errs, field.Invalid(at.Child(limit.name), limit.value, fmt.Sprintf("must be from 0 to %d", limit.max)))
			}
		}
	}
	return errs
}

func validateLinux(linux *KubeProxyLinuxConfiguration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if linux.OOMScoreAdj < -1000 || linux.OOMScoreAdj > 1000 {
		errs = append(errs, field.Invalid(path.Child("oomScoreAdj"), linux.OOMScoreAdj, "must be from -1000 to 1000"))
	}
	ct, at := &linux.Conntrack, path.Child("conntrack")
	errs = append(errs, notNegative(int64(ct.MaxPerCore), at.Child("maxPerCore"))...)
	errs = append(errs, notNegative(int64(ct.Min), at.Child("min"))...)
	errs = append(errs, notNegativeDuration(ct.TCPEstablishedTimeout, at.Child("tcpEstablishedTimeout"))...)
	errs = append(errs, notNegativeDuration(ct.TCPCloseWaitTimeout, at.Child("tcpCloseWaitTimeout"))...)
	errs = append(errs, notNegativeDuration(ct.UDPTimeout, at.Child("udpTimeout"))...)
	errs = append(errs, notNegativeDuration(ct.UDPStreamTimeout, at.Child("udpStreamTimeout"))...)
	return errs
}

// validateBackends checks the sections of backends: always for iptables, and only the active one of the others, because
// a v1alpha1 file may contain anything there.
func validateBackends(cfg *KubeProxyConfiguration) field.ErrorList {
	errs := markBit(cfg.IPTables.MasqueradeBit, field.NewPath("iptables", "masqueradeBit"))
	switch cfg.Mode {
	case ProxyModeNFTables:
		errs = append(errs, markBit(cfg.NFTables.MasqueradeBit, field.NewPath("nftables", "masqueradeBit"))...)
		errs = append(errs, oneOf(cfg.NFTables.FastPath, []FastPath{FastPathAnnotated, FastPathAll}, field.NewPath("nftables", "fastPath"))...)
	case ProxyModeIPVS:
		errs = append(errs, validateIPVS(&cfg.IPVS, field.NewPath("ipvs"))...)
	}
	return errs
}

func validateIPVS(ipvs *KubeProxyIPVSConfiguration, path *field.Path) field.ErrorList {
	errs := markBit(ipvs.MasqueradeBit, path.Child("masqueradeBit"))
	errs = append(errs, notNegativeDuration(ipvs.TCPTimeout, path.Child("tcpTimeout"))...)
	errs = append(errs, notNegativeDuration(ipvs.TCPFinTimeout, path.Child("tcpFinTimeout"))...)
	errs = append(errs, notNegativeDuration(ipvs.UDPTimeout, path.Child("udpTimeout"))...)
	for i, cidr := range ipvs.ExcludeCIDRs {
		if _, _, err := netutils.ParseCIDRSloppy(cidr); err != nil {
			errs = append(errs, field.Invalid(path.Child("excludeCIDRs").Index(i), cidr, "must be a CIDR"))
		}
	}
	return errs
}

// oneOf checks that a value is one of a list, or empty.
func oneOf[T ~string](value T, values []T, path *field.Path) field.ErrorList {
	if value == "" || slices.Contains(values, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, values)}
}

func required(value string, path *field.Path, detail string) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, detail)}
	}
	return nil
}

func markBit(bit int32, path *field.Path) field.ErrorList {
	if bit < 0 || bit > 31 {
		return field.ErrorList{field.Invalid(path, bit, "must be a bit from 0 to 31")}
	}
	return nil
}

func notNegative(value int64, path *field.Path) field.ErrorList {
	if value < 0 {
		return field.ErrorList{field.Invalid(path, value, "must not be negative")}
	}
	return nil
}

func notNegativeDuration(value metav1.Duration, path *field.Path) field.ErrorList {
	if value.Duration < 0 {
		return field.ErrorList{field.Invalid(path, value.Duration.String(), "must not be negative")}
	}
	return nil
}

func positive(value metav1.Duration, path *field.Path) field.ErrorList {
	if value.Duration <= 0 {
		return field.ErrorList{field.Invalid(path, value.Duration.String(), "must be greater than 0")}
	}
	return nil
}
