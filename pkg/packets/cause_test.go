package packets

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft/trace"
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
		if got, want := cause(&test.packet, netip.MustParseAddrPort("127.0.0.1:4000")), "its first packet was "+test.want; got != want {
			t.Errorf("%s: %q, want %q", test.packet.Verdict, got, want)
		}
	}
}

// TestCauses traces two connections. Only one sends a packet. It connects also if nothing can be traced.
func TestCauses(t *testing.T) {
	to := []netip.AddrPort{netip.MustParseAddrPort("10.96.0.0:10256"), netip.MustParseAddrPort(web)}
	endpoints := []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:4000"), netip.MustParseAddrPort("127.0.0.1:4001")}
	for _, failed := range []error{nil, errors.New("another trace is running")} {
		synctest.Test(t, func(t *testing.T) {
			kernel := &tracer{descriptions: map[string]trace.Description{}}
			connected := false
			c := Causes{Open: func(_ context.Context, f trace.Filter) (trace.Tracer, error) {
				if len(f.To) != 2 || f.To[0].Port != 10256 || !f.Opening || f.PerSecond == 0 {
					t.Errorf("the filter is %+v", f)
				}
				from(1, protoTCP, "172.18.0.11:40000", web, "").ends(trace.AfterOutput).leaves("eth0").ends(trace.AfterPostrouting).send(kernel)
				return kernel, failed
			}}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			causes, err := c.Of(ctx, to, endpoints, func() { connected = true })
			want := []string{"", "its first packet was sent to " + web + " by eth0; its destination was not translated"}
			if failed != nil {
				want[1] = ""
			}
			if !errors.Is(err, failed) || !connected || fmt.Sprintf("%q", causes) != fmt.Sprintf("%q", want) {
				t.Errorf("%v, connected %t, %q, want %q", err, connected, causes, strings.Join(want, ", "))
			}
		})
	}
}
