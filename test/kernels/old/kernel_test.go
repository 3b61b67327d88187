//go:build linux

// Package old tests kube-proxy on Debian 11, whose nf_tables is too old for nftables mode, and whose iptables has a bug.
package old

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/iptables"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/test/kubeproxy"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

// TestKernelTooOldForNFTables starts kube-proxy in nftables mode with the image's nft: that of the release is too old, too. It
// must end with an error that says what to do, and write nothing.
func TestKernelTooOldForNFTables(t *testing.T) {
	if os.Getenv("KERNELS") == "" {
		t.Skip("needs a kernel older than 5.13: run make kernels")
	}
	out, err := exec.Command(kubeproxy.Path(t), "--proxy-mode=nftables", "--manifests="+t.TempDir(), "--hostname-override=node1",
		"--conntrack-max-per-core=0").CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("ended with %v, want exit code 1", err)
	}
	for _, words := range []string{"which Linux 5.13 added", "use a newer kernel or the iptables mode"} {
		if !strings.Contains(string(out), words) {
			t.Errorf("does not say %q, but\n%s", words, out)
		}
	}
	t.Logf("the error:\n%s", out)
	if list, err := exec.Command("nft", "list", "ruleset").CombinedOutput(); err != nil || len(list) > 0 {
		t.Errorf("there is now (%v):\n%s", err, list)
	}
}

// TestKernelOldTools checks that iptables 1.8.7 has every match and target that iptables mode needs, and whether it has what the
// mode works without (ipt.Features): the nft variant cannot match bits of an address unless they are its first ones.
func TestKernelOldTools(t *testing.T) {
	if os.Getenv("KERNELS") == "" {
		t.Skip("needs the tools of Debian 11: run make kernels")
	}
	for _, variant := range []ipt.Variant{ipt.NFT, ipt.Legacy} {
		t.Run(string(variant), func(t *testing.T) {
			netns.Enter(t)
			for _, is := range []cluster.Family{cluster.IPv4, cluster.IPv6} {
				family := ipt.Family(is.String())
				tables, err := ipt.Open(t.Context(), family, variant)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = tables.Close() })
				features, err := iptables.Mode{}.Features(t.Context(), string(variant), is)
				if err != nil {
					t.Errorf("%s: %v", family, err)
				}
				for _, f := range features {
					if f.Err != nil {
						t.Errorf("%s, %s: %v", family, f.Name, f.Err)
					}
				}
				bits := "0.0.0.5/0.0.0.15"
				if family == ipt.IPv6 {
					bits = "::5/::f"
				}
				err = tables.Write(t.Context(), &ipt.Transaction{Table: "nat", Chains: []ipt.Chain{{Name: "TEST", Rules: []ipt.Rule{ipt.Listed("-d " + bits + " -j RETURN")}}}})
				if works := err == nil; works != tables.Features().AddressBits {
					t.Errorf("%s, match of the last bits of an address: %v", family, err)
				}
			}
		})
	}
}
