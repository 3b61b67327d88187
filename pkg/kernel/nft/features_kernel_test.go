package nft_test

import (
	"testing"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// TestKernelProbe checks that every feature works on this kernel, that nothing is written, and that the features fail
// without CAP_NET_ADMIN or nft.
func TestKernelProbe(t *testing.T) {
	netns.Enter(t, "nft")
	for _, family := range []knftables.Family{knftables.IPv4Family, knftables.IPv6Family} {
		found, err := nft.Probe(t.Context(), family)
		if err != nil || len(found) < 5 {
			t.Fatal(found, err)
		}
		for _, f := range found {
			if f.Err != nil {
				t.Errorf("%s: %s (%s): %v", family, f.Name, f.Module, f.Err)
			}
		}
	}
	if list := nftProgram(t, "list", "ruleset"); list != "" {
		t.Errorf("there is now:\n%s", list)
	}
	if version, err := nft.Version(t.Context()); err != nil || version == "" {
		t.Errorf("version %q, %v", version, err)
	}
	if err := unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_NET_ADMIN, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	found, err := nft.Probe(t.Context(), knftables.IPv4Family)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if f.Err == nil {
			t.Errorf("%s works without CAP_NET_ADMIN", f.Name)
		}
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := nft.Probe(t.Context(), knftables.IPv4Family); err == nil {
		t.Error("works without nft")
	}
}
