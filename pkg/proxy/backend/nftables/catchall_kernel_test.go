package nftables

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// TestKernelCatchAll has nft add elements that stand for all other keys before a proxy starts, which removes them: the first one
// would drop all packets that are for no Service.
func TestKernelCatchAll(t *testing.T) {
	netns.Enter(t, "nft")
	add := func(set, element string) {
		t.Helper()
		if out, err := exec.Command("nft", "add", "element", "ip", TableName, set, "{ "+element+" }").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	open := func() *Backend {
		kernel, err := nft.Open(nf.IPv4, TableName)
		if err != nil {
			t.Fatal(err)
		}
		b := newBackend(testOptions, kernel)
		t.Cleanup(func() { _ = b.Close() })
		return b
	}
	p := clusters.NewSized(20, 2).Plan()
	mustSync(t, open(), p)
	add(mapServices, "* : drop")
	add(setUnserved, "*")
	next := open()
	mustSync(t, next, p)
	holds(t, next, p)
	if out, err := exec.Command("nft", "list", "table", "ip", TableName).CombinedOutput(); err != nil || strings.Contains(string(out), "* ") {
		t.Errorf("%s (%v)", out, err)
	}
}
