package config

import (
	"strings"
)

// move is a field, or a section, whose path differs from v1alpha2.
type move struct {
	here   string // the path in v1alpha1; "" if there is none, "*" stands for the active mode's section
	latest string // the path in v1alpha2
	list   bool   // the field is a list in v1alpha2 and a single value here
}

// moves contains all fields whose path differs.
func moves() []move {
	return []move{
		{here: "conntrack", latest: "linux.conntrack"},
		{here: "oomScoreAdj", latest: "linux.oomScoreAdj"},
		{here: "*.masqueradeAll", latest: "linux.masqueradeAll"},
		{here: "*.syncPeriod", latest: "syncPeriod"},
		{here: "*.minSyncPeriod", latest: "minSyncPeriod"},
		{here: "clusterCIDR", latest: "detectLocal.clusterCIDRs", list: true},
		{here: "windowsRunAsService", latest: "windows.runAsService"},
		{here: "iptables.masqueradeBit", latest: "ipvs.masqueradeBit"},
		{here: "bindAddress", latest: "nodeIPOverride", list: true},
		{here: "", latest: "configHardFail"},
		{here: "", latest: "ipFamilyPolicy"},
		{here: "", latest: "connectionLimits"},
		{here: "", latest: "nftables.fastPath"},
		{here: "", latest: "linux"}, // the sections themselves; their fields are above
		{here: "", latest: "windows"},
	}
}

// PathInV1alpha1 returns the path in v1alpha1 of a field of v1alpha2, with the given mode active; "" if there is none.
func PathInV1alpha1(latest string, mode ProxyMode) string {
	for _, m := range moves() {
		rest, found := strings.CutPrefix(latest, m.latest)
		if !found || (rest != "" && rest[0] != '.' && rest[0] != '[') {
			continue
		}
		if m.here == "" {
			return ""
		}
		if m.list {
			rest = ""
		}
		if name, shared := strings.CutPrefix(m.here, "*."); shared {
			return activeSection(mode, name) + "." + name
		}
		return m.here + rest
	}
	return latest
}

// latestPath returns the path in v1alpha2 of a field of v1alpha1; "" if it was dropped.
func latestPath(path string) string {
	if path == "portRange" {
		return ""
	}
	for _, m := range moves() {
		if name, shared := strings.CutPrefix(m.here, "*."); shared {
			section, field, _ := strings.Cut(path, ".")
			if field == name && (section == "iptables" || section == "nftables" || section == "ipvs") {
				return m.latest
			}
			continue
		}
		if rest, found := strings.CutPrefix(path, m.here); found && m.here != "" && m.latest != "ipvs.masqueradeBit" && (rest == "" || rest[0] == '.') {
			return m.latest + rest
		}
	}
	return path
}

// activeSection returns the section that a shared field is read from.
func activeSection(mode ProxyMode, field string) string {
	switch {
	case mode == ProxyModeNFTables:
		return "nftables"
	case mode == ProxyModeIPVS && field != "masqueradeAll":
		return "ipvs"
	default:
		return "iptables"
	}
}
