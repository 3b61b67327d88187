package config

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// OldestKernel returns the Linux version from which on a mode is supported; "" if it runs on all. Distributions backport what a mode
// needs to older numbers.
func OldestKernel(mode ProxyMode) string {
	if mode == ProxyModeNFTables {
		return "5.13"
	}
	return ""
}

// ModeDifferences returns in which ways two modes treat packets, and their surroundings, differently for all Services, one sentence each.
// Where node ports are served is not included, because it depends on settings. test/cases holds what is about packets against both modes.
func ModeDifferences(from, to ProxyMode) (all []string) {
	if from == to {
		return nil
	}
	const undefined = "A connection to a port of a cluster IP that its Service does not have is "
	const unallocated = "Packets to addresses in ServiceCIDRs that no Service has are "
	const invalid = "Forwarded packets that conntrack calls INVALID, such as those of connections that it sees in one direction only, are "
	switch {
	case from == ProxyModeIPVS:
		all = append(all, "The addresses of Services are no longer addresses of the nodes (device kube-ipvs0): nothing answers a ping of a cluster IP.",
			"ipvsadm, the device kube-ipvs0 and the ipsets KUBE-... show nothing: read the proxy's metrics, and \"kube-proxy service list\".")
		if to == ProxyModeIPTables {
			all = append(all, undefined+"passed on as if there were no Service; recent versions of ipvs mode reject it.")
		}
	case to == ProxyModeNFTables:
		all = append(all, undefined+"rejected; iptables mode passes it on.", invalid+"passed on; iptables mode drops them unless linux.conntrack.tcpBeLiberal is set.")
	default:
		all = append(all, undefined+"passed on as if there were no Service; nftables mode rejects it.", unallocated+"passed on; nftables mode drops them.",
			"One Service may have fewer endpoints and source ranges, and each change takes longer (docs/scale.md).",
			"The tables kube-proxy of nftables are gone: what refers to their chains and maps finds nothing.")
	}
	if to == ProxyModeIPTables {
		all = append(all, invalid+"dropped unless linux.conntrack.tcpBeLiberal is set; "+string(from)+" mode passes them on.")
	} else {
		all = append(all, unallocated+"dropped; "+string(from)+" mode passes them on.",
			"Chains KUBE-... of iptables are gone, except the kubelet's: firewalls and scripts that refer to them have to find packets by the mark 0x4000, or by "+
				"ct original ip daddr (docs/integrating.md).")
	}
	return all
}

// LostSetting is a setting of ipvs mode without an effect in the modes that are served.
type LostSetting struct {
	// Field is its path in v1alpha2.
	Field string
	// Message is what happens instead, and what to write.
	Message string
	// Minor is whether that makes no difference for most users.
	Minor bool
}

// LostSettings returns those of a configuration with mode ipvs; nil for other modes.
func (c *KubeProxyConfiguration) LostSettings() []LostSetting {
	if c.EffectiveMode() != ProxyModeIPVS {
		return nil
	}
	ipvs := &c.IPVS
	all := []LostSetting{scheduler(ipvs.Scheduler)}
	if ipvs.StrictARP {
		all = append(all, LostSetting{"ipvs.strictARP", "not needed, because addresses of Services are not added to the node; arp_ignore=1 and arp_announce=2 of " +
			"net.ipv4.conf.all stay until the node restarts, or sysctl sets them to 0", true})
	}
	for _, timeout := range []struct {
		field, nearest string
		value          metav1.Duration
	}{
		{"ipvs.tcpTimeout", "linux.conntrack.tcpEstablishedTimeout (%s) is for idle TCP connections", ipvs.TCPTimeout},
		{"ipvs.tcpFinTimeout", "the nearest is the sysctl net.netfilter.nf_conntrack_tcp_timeout_fin_wait (%s), which the proxy leaves as it is", ipvs.TCPFinTimeout},
		{"ipvs.udpTimeout", "linux.conntrack.udpStreamTimeout (%s) is for UDP flows", ipvs.UDPTimeout},
	} {
		if timeout.value.Duration != 0 {
			all = append(all, LostSetting{timeout.field, "ip_vs's own timeout of " + timeout.value.Duration.String() + " ends; connection tracking decides: " +
				fmt.Sprintf(timeout.nearest, timeout.value.Duration), false})
		}
	}
	if len(ipvs.ExcludeCIDRs) > 0 {
		all = append(all, LostSetting{"ipvs.excludeCIDRs", "virtual servers in " + strings.Join(ipvs.ExcludeCIDRs, ", ") +
			" are kept when those of ipvs mode are removed; keep the setting until then", true})
	}
	return all
}

// scheduler describes what replaces a scheduler of ip_vs (ipvsadm(8)): endpoints are chosen at random, each with the same probability.
func scheduler(name string) LostSetting {
	lost := LostSetting{Field: "ipvs.scheduler"}
	switch {
	case slices.Contains([]string{"", "rr", "wrr"}, name): // every endpoint has the weight 1
		lost.Minor = true
		lost.Message = "endpoints are chosen at random instead of in turn: as even for many connections, uneven for a few"
	case slices.Contains([]string{"lc", "wlc", "sed", "nq", "ovf", "lblc", "lblcr", "twos"}, name):
		lost.Message = name + " looks at the numbers of connections; endpoints are chosen at random instead. Nothing is nearer: where connections are few and " +
			"long, let clients reconnect from time to time, or use a proxy that knows requests (Gateway, Ingress, mesh)"
	case slices.Contains([]string{"sh", "mh"}, name):
		lost.Message = name + " sends a client to the same endpoint; endpoints are chosen at random instead. The nearest is sessionAffinity: ClientIP of each Service that needs it, " +
			"which ends after a time without new connections (sessionAffinityConfig), and differs from node to node"
	case name == "dh":
		lost.Message = "dh chooses by the destination, which is one endpoint for all connections to an address; endpoints are chosen at random instead"
	case name == "fo":
		lost.Message = "fo sends all connections to one endpoint while it lasts; endpoints are chosen at random instead. For one active endpoint let only one pod be ready"
	default:
		lost.Message = name + " is replaced: endpoints are chosen at random, each with the same probability"
	}
	return lost
}
