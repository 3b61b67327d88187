package cases

import (
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/nftables"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// TestKernelTakesRuleset feeds every ruleset to the real nft.
func TestKernelTakesRuleset(t *testing.T) {
	lab := netns.Start(t, netns.Options{})
	for _, c := range load(t) {
		if c.Family == cluster.IPv6 && strings.Contains(c.Part("nftables"), "update @affinity") {
			continue // nft 1.0.6 aborts: pkg/kernel/nft/README.md; the backend does not write these as text
		}
		text := "flush ruleset\n" + nftables.Render(c.Plan(), c.Family, nftOptions)
		cmd := lab.Client.Command("nft", "-f", "-")
		cmd.Stdin = strings.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: nft: %v\n%s", c.Name, err, out)
		}
	}
}
