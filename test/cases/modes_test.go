package cases

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
)

// TestModeDifferences holds what "kube-proxy audit" says about a change of the mode against the packets that TestKernelCases sends in both
// modes: each one that they treat differently has one of the named reasons, and each reason has such a packet; for those in state INVALID see
// TestKernelAsymmetricRoutes and TestKernelInvalidDropped.
func TestModeDifferences(t *testing.T) {
	const undefined, unallocated, loopback = "port of a cluster IP that its Service does not have", "addresses in ServiceCIDRs that no Service has", "node ports on loopback addresses"
	const invalid = "packets that conntrack calls INVALID"
	seen := map[string]bool{}
	for _, c := range load(t) {
		for _, packet := range c.Packets {
			if len(packet.Except) == 0 {
				continue
			}
			reason := ""
			switch to := packet.To.Addr(); {
			case to.IsLoopback():
				reason = loopback // a finding about node ports: NodePortsDifferByMode
			case ofAService(c, to):
				reason = undefined
			case slices.ContainsFunc(c.Snapshot.ServiceCIDRs, func(of netip.Prefix) bool { return of.Contains(to) }):
				reason = unallocated
			default:
				t.Errorf("%s:%d: the modes differ, for no reason that the audit names", c.Name, packet.Line)
			}
			seen[reason] = true
		}
	}
	for from, to := range map[config.ProxyMode]config.ProxyMode{config.ProxyModeIPTables: config.ProxyModeNFTables, config.ProxyModeNFTables: config.ProxyModeIPTables} {
		text := strings.Join(config.ModeDifferences(from, to), "\n")
		for _, reason := range []string{undefined, unallocated, invalid} {
			if !strings.Contains(text, reason) {
				t.Errorf("from %s to %s nothing is said about a %s", from, to, reason)
			}
		}
	}
	if len(seen) != 3 {
		t.Errorf("packets differ because of %v", seen)
	}
}

// ofAService reports whether an address is a cluster IP of the case.
func ofAService(c *Case, addr netip.Addr) bool {
	for service := range c.Snapshot.Services.Values() {
		if slices.Contains(service.ClusterIPs, addr) {
			return true
		}
	}
	return false
}
