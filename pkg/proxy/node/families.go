package node

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// FamilyPolicy is how many address families must be usable, as in the configuration.
type FamilyPolicy string

// Any other value is PreferDualStack, which serves both families where the machine has them.
const (
	RequireDualStack FamilyPolicy = "RequireDualStack"
	SingleStack      FamilyPolicy = "SingleStack"
)

// Families returns the families to serve, the primary one first if it is known. hasIPv6 is whether the machine has IPv6
// besides IPv4. given are the addresses that the configuration sets instead of the Node's; the first one's family is primary.
// A single-stack node whose primary family is not known yet serves both, and the plan chooses (plan.Options.SingleStack).
func Families(hasIPv6 bool, policy FamilyPolicy, given []netip.Addr) ([]cluster.Family, error) {
	const remedy = "set up %[1]s on this machine (for IPv6: net.ipv6.conf.all.disable_ipv6=0)"
	families := []cluster.Family{cluster.IPv4}
	if hasIPv6 {
		families = append(families, cluster.IPv6)
	}
	if len(given) > 0 {
		primary := cluster.FamilyOf(given[0])
		at := slices.Index(families, primary)
		if at < 0 {
			return nil, fmt.Errorf("nodeIPOverride (--bind-address) makes %[1]s the primary address family, which this machine does not have; "+
				remedy+", or give an address of another family", primary)
		}
		families[0], families[at] = families[at], families[0]
		if policy == SingleStack {
			families = families[:1]
		}
	}
	if policy == RequireDualStack && len(families) < 2 {
		return nil, fmt.Errorf("ipFamilyPolicy is RequireDualStack, and this machine does not have %[1]s; "+
			remedy+", or choose PreferDualStack", cluster.IPv6)
	}
	return families, nil
}
