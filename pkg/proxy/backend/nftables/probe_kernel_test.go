package nftables

import (
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// TestKernelFeatures checks that every feature works on this kernel, that nothing is written, and that they fail without
// CAP_NET_ADMIN, and all at once without nft.
func TestKernelFeatures(t *testing.T) {
	netns.Enter(t, "nft")
	for _, family := range []cluster.Family{cluster.IPv4, cluster.IPv6} {
		found, err := Mode{}.Features(t.Context(), "", family)
		if err != nil || len(found) < 5 {
			t.Fatal(found, err)
		}
		for _, f := range found {
			if f.Err != nil {
				t.Errorf("%s: %s (%s): %v", family, f.Name, f.Module, f.Err)
			}
		}
	}
	if err := (Mode{}).Fences(t.Context(), cluster.IPv4, cluster.IPv6); err != nil {
		t.Error(err)
	}
	if list, err := exec.Command("nft", "list", "ruleset").CombinedOutput(); len(list) > 0 || err != nil {
		t.Errorf("%v: there is now:\n%s", err, list)
	}
	if err := unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_NET_ADMIN, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	if (Mode{}).Fences(t.Context(), cluster.IPv4) == nil {
		t.Error("limits work without CAP_NET_ADMIN")
	}
	found, err := Mode{}.Features(t.Context(), "", cluster.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if f.Err == nil {
			t.Errorf("%s works without CAP_NET_ADMIN", f.Name)
		}
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := (Mode{}).Features(t.Context(), "", cluster.IPv4); err == nil {
		t.Error("works without nft")
	}
}
