//go:build linux

package releases

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// written matches the line about a sync in the log, with what it wrote.
var written = regexp.MustCompile(`"Synced".* elementsWritten=(\d+) rulesWritten=(\d+)`)

// TestKernelTakeOverBetweenReleases starts kube-proxy again and again, each time in a mode and with the tools of a release. It
// must serve each time; remove the rules of the other mode, whichever release wrote them; and take over rules of the same mode
// as they are.
func TestKernelTakeOverBetweenReleases(t *testing.T) {
	netns.Require(t, "apt-get", "dpkg-deb", "chroot", "nft")
	roots, program := fetch(t, "bookworm", "trixie"), build(t)
	lab := netns.Start(t, netns.Options{})
	for _, node := range lab.Nodes() {
		for _, pod := range node.Pods {
			if _, err := pod.Serve(netns.TCP, 8080); err != nil {
				t.Fatal(err)
			}
		}
	}
	last := ""
	for i, step := range []struct{ mode, release string }{
		{"nftables", "bookworm"}, {"nftables", "trixie"}, {"nftables", "bookworm"},
		{"iptables", "trixie"}, {"iptables", "bookworm"}, {"iptables", "trixie"},
		{"nftables", "trixie"}, {"iptables", "bookworm"}, {"nftables", "bookworm"},
	} {
		t.Run(fmt.Sprintf("%d %s %s", i, step.mode, step.release), func(t *testing.T) {
			list := func(command ...string) string {
				out, err := inside(lab.Node1.Host, roots["trixie"], command).Output()
				if err != nil {
					t.Errorf("%s: %v", command, err)
				}
				return string(out)
			}
			logged := serve(t, lab.Node1.Host, start{program, step.mode, roots[step.release], func() bool {
				return strings.Contains(list("nft", "list", "tables"), "kube-proxy") == (step.mode == "nftables") &&
					strings.Contains(list("iptables-nft-save"), ":KUBE-SVC-") == (step.mode == "iptables")
			}})
			for _, to := range []string{"10.96.0.80:80", "[fd00:10:96::80]:80"} {
				probe := netns.Probe{From: lab.Node1.Pods[0], To: netip.MustParseAddrPort(to)}
				if tally := probe.Spread(50); tally.Failed() > 0 {
					t.Errorf("%s: %s; the first failure: %s", probe, tally, tally.Failures[0])
				}
			}
			syncs := written.FindAllStringSubmatch(logged, -1)
			if len(syncs) == 0 {
				t.Fatalf("no sync in the log:\n%s", logged)
			}
			if step.mode == last && (syncs[0][1] != "0" || syncs[0][2] != "0") {
				t.Errorf("the first sync wrote %s elements and %s rules, want none; the log:\n%s", syncs[0][1], syncs[0][2], logged)
			}
			last = step.mode
		})
	}

	// nft 1.0.6 crashes where 1.1.3 has written a table, so it cannot take the table over; but kube-proxy removes it without nft.
	t.Run("nftables bookworm after trixie", func(t *testing.T) {
		older := start{program: program, mode: "nftables", root: roots["bookworm"]}
		cleanUp := func() {
			if out, err := older.command(t, lab.Node1.Host, "--cleanup").CombinedOutput(); err != nil {
				t.Errorf("--cleanup: %v\n%s", err, out)
			}
		}
		cleanUp()
		serve(t, lab.Node1.Host, start{program: program, mode: "nftables", root: roots["trixie"]})
		out, err := older.command(t, lab.Node1.Host).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "a newer nft may have written a table that this one cannot read") {
			t.Errorf("kube-proxy with an older nft: %v\n%s", err, out)
		}
		cleanUp()
		serve(t, lab.Node1.Host, older)
	})
}
