package config

import (
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
	baseversion "k8s.io/component-base/version"
	netutils "k8s.io/utils/net"

	"github.com/seed-11a05479/kube-proxy/pkg/userfile"
)

// Validate returns all errors, with the paths of v1alpha2; File.Check translates them to lines and to the file's version. It
// checks every field, on any platform: settings of another platform or of an inactive backend are checked as in v1alpha1. Feature
// gates are checked by pkg/features; gate only unlocks fields.
func Validate(cfg *KubeProxyConfiguration, gate featuregate.FeatureGate) field.ErrorList {
	v := &errorList{}
	v.notNegative(cfg.ClientConnection.Burst, "clientConnection.burst")
	qps := float64(cfg.ClientConnection.QPS)
	v.check(!math.IsNaN(qps) && !math.IsInf(qps, 0), "clientConnection.qps", fmt.Sprint(qps), "must be a finite number; negative means no limit")
	v.errs = append(v.errs, logsapi.Validate(cfg.Logging.Shared(), gate, field.NewPath("logging"))...)
	v.onePerFamily(cfg.NodeIPOverride, "nodeIPOverride", "address", familyOfNodeIP)
	oneOf(v, cfg.IPFamilyPolicy, "ipFamilyPolicy", IPFamilyPolicySingleStack, IPFamilyPolicyPreferDualStack, IPFamilyPolicyRequireDualStack)
	v.address(cfg.HealthzBindAddress, "healthzBindAddress")
	v.address(cfg.MetricsBindAddress, "metricsBindAddress")
	previous, shown := version.MustParseGeneric(baseversion.DefaultKubeBinaryVersion).SubtractMinor(1).String(), cfg.ShowHiddenMetricsForVersion
	v.check(shown == "" || shown == previous, "showHiddenMetricsForVersion", shown, "only the previous minor version, %s, can be shown", previous)
	if cfg.Mode != ProxyModeIPVS && cfg.Mode != ProxyModeKernelspace { // which can be converted, see Startable
		oneOf(v, cfg.Mode, "mode", ServedModes()...)
	}
	v.positive(cfg.SyncPeriod, "syncPeriod")
	v.notNegativeDuration(cfg.MinSyncPeriod, "minSyncPeriod")
	v.positive(cfg.ConfigSyncPeriod, "configSyncPeriod")
	v.check(cfg.MinSyncPeriod.Duration <= cfg.SyncPeriod.Duration, "minSyncPeriod", cfg.MinSyncPeriod.Duration.String(),
		"must not be greater than syncPeriod, which is %s", cfg.SyncPeriod.Duration)
	v.detectLocal(cfg)
	for i, entry := range cfg.NodePortAddresses {
		keyword := slices.Contains([]string{NodePortAddressesPrimary, NodePortAddressesLocalhost, NodePortAddressesAll}, entry)
		v.check(keyword || isCIDR(entry), userfile.Element("nodePortAddresses", i), entry, "must be a CIDR or one of primary, localhost, all")
	}
	v.connectionLimits(cfg.ConnectionLimits)
	v.linux(&cfg.Linux)
	v.backends(cfg)
	return v.errs
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

// errorList collects errors.
type errorList struct{ errs field.ErrorList }

// check adds an error about a value that is not ok.
func (v *errorList) check(ok bool, path string, value any, detail string, args ...any) {
	if !ok {
		v.errs = append(v.errs, field.Invalid(field.NewPath(path), value, fmt.Sprintf(detail, args...)))
	}
}

func (v *errorList) notNegative(value int32, path string) {
	v.check(value >= 0, path, value, "must not be negative")
}

func (v *errorList) notNegativeDuration(value metav1.Duration, path string) {
	v.check(value.Duration >= 0, path, value.Duration.String(), "must not be negative")
}

func (v *errorList) positive(value metav1.Duration, path string) {
	v.check(value.Duration > 0, path, value.Duration.String(), "must be greater than 0")
}

func (v *errorList) markBit(bit int32, path string) {
	v.check(bit >= 0 && bit <= 31, path, bit, "must be a bit from 0 to 31")
}

// oneOf checks that a value is one of a list, or empty.
func oneOf[T ~string](v *errorList, value T, path string, values ...T) {
	if value != "" && !slices.Contains(values, value) {
		v.errs = append(v.errs, field.NotSupported(field.NewPath(path), value, values))
	}
}

func isCIDR(text string) bool {
	_, _, err := netutils.ParseCIDRSloppy(text)
	return err == nil
}

// onePerFamily checks a list that has at most one entry of each family. familyOf returns what is wrong with an entry, or "".
func (v *errorList) onePerFamily(entries []string, path, noun string, familyOf func(entry string) (_ netutils.IPFamily, problem string)) {
	first := map[netutils.IPFamily]string{}
	for i, entry := range entries {
		family, problem := familyOf(entry)
		if problem == "" && first[family] != "" {
			problem = fmt.Sprintf("at most one IPv%s %s; the list already has %s", family, noun, first[family])
		}
		if problem == "" {
			first[family] = entry
		}
		v.check(problem == "", userfile.Element(path, i), entry, "%s", problem)
	}
}

func familyOfNodeIP(address string) (family netutils.IPFamily, problem string) {
	switch ip := netutils.ParseIPSloppy(address); {
	case ip == nil:
		return family, "must be an IP address"
	case ip.IsUnspecified():
		return family, "must be an address of this node; or leave the list empty"
	default:
		return netutils.IPFamilyOf(ip), ""
	}
}

func familyOfPods(cidr string) (family netutils.IPFamily, problem string) {
	_, network, err := netutils.ParseCIDRSloppy(cidr)
	if err != nil {
		return family, "must be a CIDR, such as 10.244.0.0/16 or fd00:10:244::/56"
	}
	return netutils.IPFamilyOfCIDR(network), ""
}

// address checks IP:port; empty disables the server.
func (v *errorList) address(address, path string) {
	host, port, err := net.SplitHostPort(address)
	if address == "" || err != nil {
		v.check(address == "", path, address, "must be IP:port, such as 0.0.0.0:10256 or [::]:10256")
		return
	}
	v.check(netutils.ParseIPSloppy(host) != nil, path, address, "%q must be an IP address", host)
	number, err := strconv.Atoi(port)
	v.check(err == nil && number >= 1 && number <= 65535, path, address, "port %q must be a number from 1 to 65535", port)
}

// detectLocal checks the parameters of the selected mode; the others have no effect.
func (v *errorList) detectLocal(cfg *KubeProxyConfiguration) {
	switch cfg.DetectLocalMode {
	case LocalModeBridgeInterface:
		v.interfaces(cfg.DetectLocal.BridgeInterface, "detectLocal.bridgeInterface", "needed in detectLocalMode BridgeInterface")
	case LocalModeInterfaceNamePrefix:
		v.interfaces(cfg.DetectLocal.InterfaceNamePrefix, "detectLocal.interfaceNamePrefix", "needed in detectLocalMode InterfaceNamePrefix")
	case LocalModeClusterCIDR, "":
		v.onePerFamily(cfg.DetectLocal.ClusterCIDRs, "detectLocal.clusterCIDRs", "CIDR", familyOfPods)
	default:
		oneOf(v, cfg.DetectLocalMode, "detectLocalMode", LocalModeClusterCIDR, LocalModeNodeCIDR, LocalModeBridgeInterface, LocalModeInterfaceNamePrefix)
	}
}

// interfaces checks the name of an interface, or the beginning of names, which is required. No interface has a name that the kernel refuses,
// and no rule can contain one.
func (v *errorList) interfaces(name, path, required string) {
	if name == "" {
		v.errs = append(v.errs, field.Required(field.NewPath(path), required))
	}
	v.check(len(name) <= 15 && name != "*" && !strings.ContainsAny(name, "/: \t\n\v\f\r"), path, name,
		"must be at most 15 bytes without white space, slashes and colons, as names of interfaces are")
}

// maxRate and maxOpen are cluster.MaxRate and cluster.MaxOpen.
const (
	maxRate = 100_000
	maxOpen = 5_000
)

func (v *errorList) connectionLimits(all []ConnectionLimits) {
	listed := map[string]bool{}
	for i, limits := range all {
		at := userfile.Element("connectionLimits", i) + "."
		if limits.Namespace != "*" {
			for _, problem := range validation.IsDNS1123Label(limits.Namespace) {
				v.check(false, at+"namespace", limits.Namespace, "must be a namespace, or * for all that are not listed: %s", problem)
			}
		}
		if listed[limits.Namespace] {
			v.errs = append(v.errs, field.Duplicate(field.NewPath(at+"namespace"), limits.Namespace))
		}
		listed[limits.Namespace] = true
		for _, limit := range []struct {
			name       string
			value, max int32
		}{{"perSecond", limits.PerSecond, maxRate}, {"open", limits.Open, maxOpen}, {"clientPerSecond", limits.ClientPerSecond, maxRate}, {"clientOpen", limits.ClientOpen, maxOpen}} {
			v.check(limit.value >= 0 && limit.value <= limit.max, at+limit.name, limit.value, "must be from 0 to %d", limit.max)
		}
	}
}

func (v *errorList) linux(linux *KubeProxyLinuxConfiguration) {
	v.check(linux.OOMScoreAdj >= -1000 && linux.OOMScoreAdj <= 1000, "linux.oomScoreAdj", linux.OOMScoreAdj, "must be from -1000 to 1000")
	ct := &linux.Conntrack
	v.notNegative(ct.MaxPerCore, "linux.conntrack.maxPerCore")
	v.notNegative(ct.Min, "linux.conntrack.min")
	v.notNegativeDuration(ct.TCPEstablishedTimeout, "linux.conntrack.tcpEstablishedTimeout")
	v.notNegativeDuration(ct.TCPCloseWaitTimeout, "linux.conntrack.tcpCloseWaitTimeout")
	v.notNegativeDuration(ct.UDPTimeout, "linux.conntrack.udpTimeout")
	v.notNegativeDuration(ct.UDPStreamTimeout, "linux.conntrack.udpStreamTimeout")
}

// backends checks the sections of backends: always for iptables, and only the active one of the others, because
// a v1alpha1 file may contain anything in them; it has no fastPath.
func (v *errorList) backends(cfg *KubeProxyConfiguration) {
	v.markBit(cfg.IPTables.MasqueradeBit, "iptables.masqueradeBit")
	oneOf(v, cfg.NFTables.FastPath, "nftables.fastPath", FastPathAnnotated, FastPathAll)
	switch cfg.Mode {
	case ProxyModeNFTables:
		v.markBit(cfg.NFTables.MasqueradeBit, "nftables.masqueradeBit")
	case ProxyModeIPVS:
		v.markBit(cfg.IPVS.MasqueradeBit, "ipvs.masqueradeBit")
		v.notNegativeDuration(cfg.IPVS.TCPTimeout, "ipvs.tcpTimeout")
		v.notNegativeDuration(cfg.IPVS.TCPFinTimeout, "ipvs.tcpFinTimeout")
		v.notNegativeDuration(cfg.IPVS.UDPTimeout, "ipvs.udpTimeout")
		for i, cidr := range cfg.IPVS.ExcludeCIDRs {
			v.check(isCIDR(cidr), userfile.Element("ipvs.excludeCIDRs", i), cidr, "must be a CIDR")
		}
	}
}
