package nft_test

import (
	"os/exec"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

// testTable is the name of the tables in these tests.
const testTable = "kube-proxy"

// openKernel opens the kernel's table in a new namespace.
func openKernel(t testing.TB, family nf.Family) *nft.KernelTable {
	t.Helper()
	netns.Enter(t, "nft", "ip")
	table, err := nft.Open(family, testTable)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := table.Close(); err != nil {
			t.Error(err)
		}
	})
	return table.(*nft.KernelTable)
}

// nftProgram runs nft(8) in the test's namespace.
func nftProgram(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.Command("nft", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("nft %q: %v\n%s", args, err, out)
	}
	return string(out)
}
