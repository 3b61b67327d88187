package cases

import (
	"flag"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/tools/txtar"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/iptables"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/nftables"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

var update = flag.Bool("update", false, "rewrite the golden parts")

// nftMode is the nftables backend's in all cases.
var nftMode = nftables.Mode{Options: nftables.Options{Mark: 0x4000}}

// iptMode is the iptables backend's in all cases.
var iptMode = iptables.Mode{Options: iptables.Options{Mark: 0x4000}}

func load(t *testing.T) []*Case {
	t.Helper()
	all, err := Load(".")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestGolden compares the output of the pure stages for each case with the golden parts of its file.
func TestGolden(t *testing.T) {
	skeleton := renderSkeleton(t)
	for _, c := range load(t) {
		if c.Family != cluster.IPv4 {
			continue // the same decisions with other addresses
		}
		t.Run(c.Name, func(t *testing.T) {
			p := c.Plan()
			golden(t, c.Path, c.Archive, c.partName("plan"), planText(p))
			if c.Before != nil {
				return // only the plan of later steps is golden
			}
			rules := renderBoth(p)
			golden(t, c.Path, c.Archive, "nftables", added(rules.nftables, skeleton.nftables))
			golden(t, c.Path, c.Archive, "iptables", added(rules.iptables, skeleton.iptables))
		})
	}
}

// golden compares a part of an archive, read from path, with the wanted text; with -update it writes the text.
func golden(t *testing.T, path string, archive *txtar.Archive, name, got string) {
	t.Helper()
	if !*update {
		if diff := cmp.Diff(part(archive, name), got); diff != "" {
			t.Errorf("%s, part %s differs (-file +now); if the change is intended, run make golden:\n%s", path, name, diff)
		}
		return
	}
	i := slices.IndexFunc(archive.Files, func(f txtar.File) bool { return f.Name == name })
	if i < 0 {
		i = len(archive.Files)
		archive.Files = append(archive.Files, txtar.File{Name: name})
	}
	archive.Files[i].Data = []byte(got)
	if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestPackets compares the plan's explanation of each packet with the expected result.
func TestPackets(t *testing.T) {
	packets := 0
	for _, c := range load(t) {
		t.Run(c.Name, func(t *testing.T) {
			p := c.Plan()
			for _, question := range c.Packets {
				packets++
				if diff := cmp.Diff(question, c.Explain(p, question), cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
					t.Errorf("%s, packets, line %d (-file +plan):\n%s", c.Path, question.Line, diff)
				}
			}
		})
	}
	t.Logf("%d packets", packets)
}
