//go:build linux

package releases

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/test/kubeproxy"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// written matches the line about a sync in the log, with what it wrote.
var written = regexp.MustCompile(`"Synced".* elementsWritten=(\d+) rulesWritten=(\d+)`)

// step is one run of kube-proxy in a node's life.
type step struct {
	mode, release string
	// rewrites means that the run writes rules although the last one had the same mode: iptables-nft 1.8.7 encodes some rules in
	// other ways than later releases.
	rewrites bool
}

// TestKernelTakeOverBetweenReleases starts kube-proxy again and again, each time in a mode and with the tools of a release. It
// must serve each time; remove the rules of the other mode, whichever release wrote them; and take over rules of the same mode
// as they are.
func TestKernelTakeOverBetweenReleases(t *testing.T) {
	netns.Require(t, "apt-get", "dpkg-deb", "chroot", "nft")
	roots, program := fetch(t, "bullseye", "bookworm", "trixie"), kubeproxy.Path(t)
	for variant, steps := range map[string][]step{
		"nft": {
			{"nftables", "bookworm", false}, {"nftables", "trixie", false}, {"nftables", "bookworm", false},
			{"iptables", "trixie", false}, {"iptables", "bookworm", false}, {"iptables", "trixie", false},
			{"nftables", "trixie", false}, {"iptables", "bookworm", false}, {"nftables", "bookworm", false},
			{"iptables", "bullseye", false}, {"iptables", "bookworm", true}, {"iptables", "bullseye", true},
			{"iptables", "trixie", true}, {"iptables", "bullseye", true}, {"iptables", "bullseye", false}, {"nftables", "trixie", false},
		},
		"legacy": {
			{"iptables", "bullseye", false}, {"iptables", "bookworm", false}, {"iptables", "trixie", false},
			{"iptables", "bullseye", false}, {"iptables", "trixie", false}, {"iptables", "bookworm", false},
			{"iptables", "bullseye", false}, {"nftables", "bookworm", false}, {"iptables", "trixie", false},
			{"nftables", "trixie", false}, {"iptables", "bullseye", false}, {"nftables", "bookworm", false},
		},
	} {
		t.Run(variant, func(t *testing.T) {
			n := newNode(t, program, variant, roots)
			last := ""
			for i, step := range steps {
				t.Run(fmt.Sprintf("%d %s %s", i, step.mode, step.release), func(t *testing.T) { n.run(t, step, step.mode == last) })
				last = step.mode
			}
		})
	}
}

// node is a node that runs kube-proxy again and again.
type node struct {
	lab              *netns.Lab
	program, variant string
	roots            map[string]string
	manifests        string
}

// newNode starts a lab whose pods serve port 8080. If the variant is legacy, node1 has the chain by which a kubelet shows that.
func newNode(t *testing.T, program, variant string, roots map[string]string) *node {
	t.Helper()
	n := &node{netns.Start(t, netns.Options{}), program, variant, roots, many(t)}
	for _, node := range n.lab.Nodes() {
		for _, pod := range node.Pods {
			if _, err := pod.Serve(netns.TCP, 8080); err != nil {
				t.Fatal(err)
			}
		}
	}
	if variant == "legacy" {
		hint := []string{"iptables-legacy", "-w", "-t", "mangle", "-N", "KUBE-IPTABLES-HINT"}
		if out, err := inside(n.lab.Node1.Host, roots["trixie"], hint).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", hint, err, out)
		}
	}
	return n
}

// many returns a folder with the examples and a hundred Services: iptables 1.8.7 cannot write the rules that find the chain of
// one among more than 64.
func many(t *testing.T) (folder string) {
	t.Helper()
	folder = t.TempDir()
	if err := os.CopyFS(folder, os.DirFS("../../examples")); err != nil {
		t.Fatal(err)
	}
	var others strings.Builder
	for i := range 100 {
		fmt.Fprintf(&others, "---\napiVersion: v1\nkind: Service\nmetadata: {name: other-%d, namespace: default}\n"+
			"spec: {type: ClusterIP, clusterIP: 10.96.99.%[1]d, clusterIPs: [10.96.99.%[1]d, 'fd00:10:96::99:%[1]d'], ports: [{port: 80}]}\n"+
			"---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n"+
			"metadata: {name: other-%[1]d, namespace: default, labels: {kubernetes.io/service-name: other-%[1]d}}\n"+
			"addressType: IPv4\nports: [{port: 8080}]\nendpoints: [{addresses: [10.244.1.2]}]\n", i)
	}
	if err := os.WriteFile(filepath.Join(folder, "others.yaml"), []byte(others.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}

// list returns the output of one of trixie's programs.
func (n *node) list(t *testing.T, command ...string) string {
	t.Helper()
	out, err := inside(n.lab.Node1.Host, n.roots["trixie"], command).Output()
	if err != nil {
		t.Errorf("%s: %v", command, err)
	}
	return string(out)
}

// run makes one step; same means that the last one had the same mode.
func (n *node) run(t *testing.T, step step, same bool) {
	logged := serve(t, n.lab.Node1.Host, start{n.program, step.mode, n.roots[step.release], n.manifests, func() bool {
		return strings.Contains(n.list(t, "nft", "list", "tables"), "kube-proxy") == (step.mode == "nftables") &&
			strings.Contains(n.list(t, "iptables-"+n.variant+"-save", "-t", "nat"), ":KUBE-SVC-") == (step.mode == "iptables")
	}})
	for _, to := range []string{"10.96.0.80:80", "[fd00:10:96::80]:80"} {
		probe := netns.Probe{From: n.lab.Node1.Pods[0], To: netip.MustParseAddrPort(to)}
		if tally := probe.Spread(50); tally.Failed() > 0 {
			t.Errorf("%s: %s; the first failure: %s", probe, tally, tally.Failures[0])
		}
	}
	syncs := written.FindAllStringSubmatch(logged, -1)
	if len(syncs) == 0 {
		t.Fatalf("no sync in the log:\n%s", logged)
	}
	if wrote := syncs[0][1] != "0" || syncs[0][2] != "0"; wrote != (!same || step.rewrites) {
		t.Errorf("the first sync wrote %s elements and %s rules; rewrites is %t; the log:\n%s", syncs[0][1], syncs[0][2], step.rewrites, logged)
	}
	t.Logf("wrote %s elements and %s rules", syncs[0][1], syncs[0][2])
}

// TestKernelOlderNFT starts kube-proxy with nft 1.0.6, which crashes where 1.1.3 has written a table, so it cannot take the
// table over; but kube-proxy removes it without nft.
func TestKernelOlderNFT(t *testing.T) {
	netns.Require(t, "apt-get", "dpkg-deb", "chroot")
	roots, program := fetch(t, "bookworm", "trixie"), kubeproxy.Path(t)
	lab := netns.Start(t, netns.Options{})
	older := start{program: program, mode: "nftables", root: roots["bookworm"]}
	serve(t, lab.Node1.Host, start{program: program, mode: "nftables", root: roots["trixie"]})
	out, err := older.command(t, lab.Node1.Host).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "a newer nft may have written a table that this one cannot read") {
		t.Errorf("kube-proxy with an older nft: %v\n%s", err, out)
	}
	if out, err := older.command(t, lab.Node1.Host, "--cleanup").CombinedOutput(); err != nil {
		t.Errorf("--cleanup: %v\n%s", err, out)
	}
	serve(t, lab.Node1.Host, older)
}
