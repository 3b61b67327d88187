package iptables

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// ipvsRules are the chains of ipvs mode with their jumps, and rules of other programs.
const ipvsRules = `*nat
:KUBE-SERVICES - [0:0]
:KUBE-LOAD-BALANCER - [0:0]
:KUBE-NODE-PORT - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-MARK-MASQ - [0:0]
:OTHER - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A PREROUTING -j OTHER
-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODE-PORT
-A KUBE-SERVICES -p tcp -j KUBE-LOAD-BALANCER
-A KUBE-LOAD-BALANCER -j KUBE-MARK-MASQ
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
COMMIT
*filter
:KUBE-FORWARD - [0:0]
:KUBE-NODE-PORT - [0:0]
:KUBE-PROXY-FIREWALL - [0:0]
:KUBE-SOURCE-RANGES-FIREWALL - [0:0]
:KUBE-IPVS-FILTER - [0:0]
:KUBE-IPVS-OUT-FILTER - [0:0]
-A INPUT -m comment --comment "kubernetes ipvs access filter" -j KUBE-IPVS-FILTER
-A INPUT -m comment --comment "kubernetes health check rules" -j KUBE-NODE-PORT
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A OUTPUT -m comment --comment "kubernetes ipvs access filter" -j KUBE-IPVS-OUT-FILTER
-A KUBE-PROXY-FIREWALL -p tcp -j KUBE-SOURCE-RANGES-FIREWALL
COMMIT
`

// TestTakesOverFromIPVSMode syncs after ipvs mode: none of the chains that only ipvs mode has is left, nor a jump to
// them, and cleanup leaves only rules of other programs.
func TestTakesOverFromIPVSMode(t *testing.T) {
	variants(t, func(t *testing.T, variant ipt.Variant) {
		b, door := oneFake(t, variant)
		tamper(t, door, ipvsRules)
		sync(t, b, clusters.NewSized(5, 3).Plan())
		now := door.Dump()
		for _, words := range []string{"IPVS", "KUBE-LOAD-BALANCER", "KUBE-NODE-PORT ", "SOURCE-RANGES"} {
			if strings.Contains(strings.ReplaceAll(now, "\n", " \n"), words) {
				t.Errorf("after a sync there is still %q:\n%s", words, now)
			}
		}
		check(t, b, 0)
		if err := b.Cleanup(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, clean := oneFake(t, variant)
		tamper(t, clean, "*nat\n:OTHER - [0:0]\n-A PREROUTING -j OTHER\nCOMMIT\n")
		if diff := cmp.Diff(clean.Dump(), door.Dump()); diff != "" {
			t.Errorf("after a clean-up (-want +got):\n%s", diff)
		}
	})
}
