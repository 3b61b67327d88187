//go:build linux

package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/nftables"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/source/manifests"
)

// TestIdentifyFails proves that a source that fails before it is complete ends the start, and is not waited for.
func TestIdentifyFails(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	in := &inputs{standalone: true, sources: []source.Source{manifests.New(filepath.Join(t.TempDir(), "missing"), "node1")}}
	if _, err := in.identify(ctx, cluster.NewBuilder("node1"), false); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without the folder of manifests: %v", err)
	}
}

// TestOpenWithoutSecondary proves that a family that does not work is left out if it may be, and only then.
func TestOpenWithoutSecondary(t *testing.T) {
	both := []cluster.Family{cluster.IPv4, cluster.IPv6}
	for _, test := range []struct {
		name   string
		policy config.IPFamilyPolicy
		broken []cluster.Family
		want   []cluster.Family // nil is an error
	}{
		{"both work", "", nil, both},
		{"the secondary does not work", "", both[1:], both[:1]},
		{"the secondary does not work and is required", config.IPFamilyPolicyRequireDualStack, both[1:], nil},
		{"the primary does not work", "", both[:1], nil},
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
