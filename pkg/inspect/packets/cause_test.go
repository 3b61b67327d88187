package packets

import (
	"net/netip"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
)

// TestCause describes why a connection to 127.0.0.1:4000 fails.
func TestCause(t *testing.T) {
	met := []v1alpha1.TracedChain{
		{Family: "ip", Table: "nat", Steps: []v1alpha1.TracedStep{{Chain: "OUTPUT", Rule: 3, Verdict: "jump", To: "KUBE-SERVICES"}, {Chain: "KUBE-SERVICES", Rule: 4, Verdict: "return"}}},
		{Family: "ip", Table: "kube-proxy", Steps: []v1alpha1.TracedStep{{Chain: "nat-output", Rule: 5, Verdict: "jump", To: "services"}}},
		{Family: "inet", Table: "theirs", Steps: []v1alpha1.TracedStep{{Chain: "bad", Rule: 6, Verdict: "continue"}, {Chain: "bad", Rule: 7, Verdict: "accept"}}},
		{Family: "ip", Table: "filter", Steps: []v1alpha1.TracedStep{{Chain: "OUTPUT", Verdict: "accept"}}},
	}
	const theirs = "; rules of other programs that it matched: table inet theirs, chain bad"
	for _, test := range []struct {
		packet v1alpha1.PacketTrace
		want   string
	}{
		{v1alpha1.PacketTrace{Verdict: "Dropped", Reason: "dropped by a rule", Chains: met}, "dropped by a rule"},
		{v1alpha1.PacketTrace{Verdict: "Vanished", Reason: "not seen", Chains: met}, "not seen" + theirs},
		{v1alpha1.PacketTrace{Verdict: "Delivered", Reason: "delivered", TranslatedDestination: "127.0.0.1:4000", Chains: met}, "delivered, but no answer came back"},
		{v1alpha1.PacketTrace{Verdict: "Sent", Reason: "sent to 192.0.2.1:9", TranslatedDestination: "192.0.2.1:9", Chains: met[2:]}, "sent to 192.0.2.1:9, which is not the endpoint 127.0.0.1:4000" + theirs},
		{v1alpha1.PacketTrace{Verdict: "Sent", Reason: "sent by eth0", Chains: met[:2]}, "sent by eth0; its destination was not translated"},
		{v1alpha1.PacketTrace{Verdict: "Sent", Reason: "sent by eth0", Chains: met}, "sent by eth0; its destination was not translated" + theirs},
	} {
		if got, want := Cause(&test.packet, netip.MustParseAddrPort("127.0.0.1:4000")), "its first packet was "+test.want; got != want {
			t.Errorf("%s: %q, want %q", test.packet.Verdict, got, want)
		}
	}
}
