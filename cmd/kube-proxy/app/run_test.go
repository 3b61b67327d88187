//go:build linux

package app

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/nftables"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// TestOpenWithoutFamily leaves a family out that does not work if it may be left out, and only then.
func TestOpenWithoutFamily(t *testing.T) {
	both := []cluster.Family{cluster.IPv4, cluster.IPv6}
	for _, test := range []struct {
		name   string
		policy config.IPFamilyPolicy
		given  string // the user's own node address
		broken []cluster.Family
		want   []cluster.Family // nil is an error
	}{
		{"both work", "", "", nil, both},
		{"the second does not work", "", "", both[1:], both[:1]},
		{"the first does not work", "", "", both[:1], both[1:]},
		{"the second does not work and is required", config.IPFamilyPolicyRequireDualStack, "", both[1:], nil},
		{"the primary does not work", "", "192.0.2.1", both[:1], nil},
		{"the secondary does not work", "", "192.0.2.1", both[1:], both[:1]},
		{"none works", "", "", both, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			open := func(_ context.Context, _ *config.KubeProxyConfiguration, families []cluster.Family) (backend.Backend, error) {
				for _, family := range families {
					if slices.Contains(test.broken, family) {
						return nil, fmt.Errorf("%s does not work", family)
					}
				}
				return &nftables.Backend{}, nil
			}
			p := &process{cfg: &config.KubeProxyConfiguration{IPFamilyPolicy: test.policy}, chosen: dataplane{open: open}, families: both}
			if test.given != "" {
				p.given = []netip.Addr{netip.MustParseAddr(test.given)}
			}
			opened, err := p.open(t.Context())
			switch {
			case test.want == nil && (err == nil || !strings.Contains(err.Error(), test.broken[0].String()+" does not work")):
				t.Errorf("got %v, %v", opened, err)
			case test.want != nil && (err != nil || opened == nil || !slices.Equal(p.families, test.want)):
				t.Errorf("%v are served, %v; want %v", p.families, err, test.want)
			}
		})
	}
}
