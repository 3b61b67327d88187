//go:build linux

package restart

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/clusters"
)

// fighters are programs that rewrite kube-proxy's rules, and rules of their own, until they are stopped.
var fighters = map[string]string{
	nftables: `while :; do nft 'flush chain ip kube-proxy nat-prerouting; flush map ip6 kube-proxy services;
add table inet fighter; add chain inet fighter mine { type filter hook input priority 7; }; flush chain inet fighter mine; add rule inet fighter mine tcp dport 7 drop'; sleep 0.1; done`,
	iptables: `while :; do printf '*nat\n-F KUBE-SERVICES\nCOMMIT\n*filter\n:FIGHTER - [0:0]\n-A FIGHTER -p tcp --dport 7 -j DROP\nCOMMIT\n' | iptables-nft-restore --noflush; sleep 0.1; done`,
	legacy:   `while :; do printf '*nat\n-F KUBE-SERVICES\nCOMMIT\n*filter\n:FIGHTER - [0:0]\n-A FIGHTER -p tcp --dport 7 -j DROP\nCOMMIT\n' | iptables-legacy-restore --wait --noflush; sleep 0.1; done`,
}

// fights is how long a fighter fights: until the log has a second line.
const fights = 16 * time.Second

// TestKernelFight has a program rewrite the rules all the time: the repairs back off, the log names the program where the kernel
// does, in few lines, and the program's own rules are not touched. When it ends, the rules are right.
func TestKernelFight(t *testing.T) {
	t.Parallel()
	for of, script := range fighters {
		t.Run(of, func(t *testing.T) {
			t.Parallel()
			r, probes := newTrial(t)
			r.dual = true
			r.write(0, r.pods)
			variant := map[string]string{nftables: "nft", iptables: "nft", legacy: "legacy"}[of]
			n := newNode(t, r.lab.Node1.Host, variant)
			mode, _, _ := strings.Cut(of, " ")
			r.start(mode)
			r.serves(probes)
			before := r.steady(of)
			fighter := r.lab.Node1.Command("sh", "-c", script)
			if err := fighter.Start(); err != nil {
				t.Fatal(err)
			}
			syncs := func() int {
				return number(t, r.get("/metrics"), "kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"}")
			}
			at := syncs()
			time.Sleep(fights)
			repairs := syncs() - at
			if err := fighter.Kill(); err != nil {
				t.Fatal(err)
			}
			// At once, 100 ms, 200 ms, ... 4 s apart.
			if most := 8 + 2*int(fights/(4*time.Second)); repairs == 0 || repairs > most {
				t.Errorf("%d repairs in %v, want some, up to %d", repairs, fights, most)
			}
			foreign := n.foreign(of)
			r.repaired(of, before)
			if now := n.foreign(of); now != foreign || !strings.Contains(now, "7") {
				t.Errorf("the program's own rules were\n%s and are\n%s", foreign, now)
			}
			r.ended("Rules were modified externally")
			lines, named := 0, 0
			for line := range strings.Lines(r.log.String()) {
				if strings.Contains(line, "Rules were modified externally") {
					lines++
					if strings.Contains(line, "writer=") && strings.Contains(line, "process ") {
						named++
					}
				}
			}
			t.Logf("%s: %d repairs and %d lines in %v; %d name the writer", of, repairs, lines, fights, named)
			if lines > 10 || named == 0 && of != legacy {
				t.Errorf("%d lines, %d name the writer:\n%s", lines, named, r.log.String())
			}
		})
	}
}

// foreign lists the rules of a fighter.
func (n *node) foreign(of string) string {
	n.t.Helper()
	if of == nftables {
		return n.must("nft", "list", "table", "inet", "fighter")
	}
	return n.must(fmt.Sprintf("iptables-%s", n.variant), "--wait", "--list-rules", "FIGHTER")
}

// steady waits until the rules stay the same for a second, and returns them.
func (r *trial) steady(of string) string {
	r.t.Helper()
	before := ""
	for range 60 {
		now := ownRules(r.lab.Node1.Host, of)
		if now == before {
			return now
		}
		before = now
		time.Sleep(time.Second)
	}
	r.t.Fatal("the rules keep changing")
	return ""
}

// repaired waits until the rules are as before.
func (r *trial) repaired(of, before string) {
	r.t.Helper()
	now := ""
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if now = ownRules(r.lab.Node1.Host, of); without(now, "FIGHTER") == without(before, "FIGHTER") {
			return
		}
	}
	r.t.Errorf("the rules are not repaired:\n%s\n%s", strings.Join(clusters.ChangedLines(before, now), "\n"), r.log.String())
}

// without returns the lines that do not contain some text.
func without(text, word string) string {
	var kept []string
	for line := range strings.Lines(text) {
		if !strings.Contains(line, word) {
			kept = append(kept, strings.TrimSpace(line))
		}
	}
	return strings.Join(kept, "\n")
}
