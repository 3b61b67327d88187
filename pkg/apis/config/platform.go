package config

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
)

// Startable returns the errors if a valid configuration cannot be started on a platform (a GOOS).
func Startable(cfg *KubeProxyConfiguration, goos string) field.ErrorList {
	path := field.NewPath("mode")
	switch windows := goos == "windows"; {
	case cfg.Mode == ProxyModeIPVS:
		return field.ErrorList{field.Invalid(path, cfg.Mode, "this proxy has no ipvs backend, which Kubernetes has deprecated; use nftables, which scales better")}
	case cfg.Mode == ProxyModeKernelspace && !windows:
		return field.ErrorList{field.Invalid(path, cfg.Mode, "exists on Windows only; use nftables or iptables")}
	case windows && cfg.Mode != "" && cfg.Mode != ProxyModeKernelspace:
		return field.ErrorList{field.Invalid(path, cfg.Mode, "does not exist on Windows; use kernelspace")}
	}
	return nil
}

// Platform returns the platform (a GOOS) that a configuration is for.
func Platform(cfg *KubeProxyConfiguration) string {
	if cfg.Mode == ProxyModeKernelspace {
		return "windows"
	}
	return "linux"
}

// Families are the IP families in use on a node.
type Families struct {
	IPv4, IPv6 bool
}

// has reports whether a family is in use.
func (f Families) has(family netutils.IPFamily) bool {
	return (family == netutils.IPv4 && f.IPv4) || (family == netutils.IPv6 && f.IPv6)
}

// CheckFamilies compares a valid configuration with the families in use. It is an error if all cluster CIDRs are of
// families that are not in use; everything else that may be unintended is a warning, or an error with configHardFail.
func CheckFamilies(cfg *KubeProxyConfiguration, use Families) (errs, warnings field.ErrorList) {
	clusterCIDRs := cfg.DetectLocal.ClusterCIDRs
	if (cfg.DetectLocalMode == LocalModeClusterCIDR || cfg.DetectLocalMode == "") && len(clusterCIDRs) > 0 {
		wrong := wrongFamily(clusterCIDRs, field.NewPath("detectLocal", "clusterCIDRs"), use)
		if single := use.IPv4 != use.IPv6; single && len(wrong) == len(clusterCIDRs) {
			errs = append(errs, wrong...)
		} else {
			warnings = append(warnings, wrong...)
		}
	}
	warnings = append(warnings, wrongFamily(cfg.NodeIPOverride, field.NewPath("nodeIPOverride"), use)...)
	missing := oneSided(cfg.NodePortAddresses, use)
	oneOfTwo := len(missing) == 1 && use.IPv4 && use.IPv6
	if !oneOfTwo || cfg.IPFamilyPolicy != IPFamilyPolicySingleStack { // which serves only one of them
		warnings = append(warnings, missing...)
	}
	if cfg.ConfigHardFail {
		return append(errs, warnings...), nil
	}
	return errs, warnings
}

// wrongFamily returns the IPs and CIDRs whose family is not in use.
func wrongFamily(values []string, path *field.Path, use Families) field.ErrorList {
	var errs field.ErrorList
	for i, value := range values {
		if family := familyOf(value); !use.has(family) {
			errs = append(errs, field.Invalid(path.Index(i), value, fmt.Sprintf("this node has no IPv%s", family)))
		}
	}
	return errs
}

// oneSided returns the families in use without an entry in a list of NodePort addresses, so that upstream, and this
// proxy, accept NodePorts on all addresses of that family. Keywords stand for both families.
func oneSided(entries []string, use Families) field.ErrorList {
	if len(entries) == 0 {
		return nil
	}
	covered := map[netutils.IPFamily]bool{}
	for _, entry := range entries {
		switch entry {
		case NodePortAddressesPrimary, NodePortAddressesLocalhost, NodePortAddressesAll:
			return nil
		}
		covered[familyOf(entry)] = true
	}
	var errs field.ErrorList
	for _, family := range []netutils.IPFamily{netutils.IPv4, netutils.IPv6} {
		if use.has(family) && !covered[family] {
			errs = append(errs, field.Invalid(field.NewPath("nodePortAddresses"), entries,
				fmt.Sprintf("no entry for IPv%s: NodePorts are accepted on all IPv%s addresses of this node", family, family)))
		}
	}
	return errs
}

// familyOf returns the family of an IP or CIDR.
func familyOf(value string) netutils.IPFamily {
	if family := netutils.IPFamilyOfCIDRString(value); family != netutils.IPFamilyUnknown {
		return family
	}
	return netutils.IPFamilyOfString(value)
}
