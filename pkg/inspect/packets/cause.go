package packets

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
)

// Cause describes why a connection whose only endpoint is known fails, by the trace of its first packet.
func Cause(p *v1alpha1.PacketTrace, endpoint netip.AddrPort) string {
	passed := p.Verdict == v1alpha1.PacketSent || p.Verdict == v1alpha1.PacketDelivered
	switch met := others(p); {
	case passed && p.TranslatedDestination == endpoint.String():
		return fmt.Sprintf("its first packet was %s, but no answer came back", p.Reason)
	case passed && p.TranslatedDestination != "":
		return fmt.Sprintf("its first packet was %s, which is not the endpoint %s%s", p.Reason, endpoint, met)
	case passed:
		return "its first packet was " + p.Reason + "; its destination was not translated" + met
	case p.Verdict == v1alpha1.PacketVanished:
		return "its first packet was " + p.Reason + met
	default:
		return "its first packet was " + p.Reason
	}
}

// others names the chains of other programs in which a packet has matched rules; "" if there are none.
func others(p *v1alpha1.PacketTrace) string {
	var all []string
	for _, c := range p.Chains {
		for _, s := range c.Steps {
			name := fmt.Sprintf("%s %s, chain %s", c.Family, c.Table, s.Chain)
			if s.Rule != 0 && !isOurs(c.Family, c.Table, s.Chain) && !isOurs(c.Family, c.Table, s.To) && !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	if len(all) == 0 {
		return ""
	}
	return "; rules of other programs that it matched: table " + strings.Join(all, "; table ")
}
