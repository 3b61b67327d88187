//go:build linux

package restart

import (
	"errors"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// The modes in which kube-proxy is restarted.
const (
	nftables = "nftables"
	iptables = "iptables"
	// legacy is iptables mode with the legacy variant.
	legacy = "iptables legacy"
)

// switches returns the number of mode changes; in a short test, enough to kill one process before it is done.
func switches() int {
	if testing.Short() {
		return 6
	}
	return 12
}

// foreignRules are rules of other programs, in every table that kube-proxy writes: the kubelet, whose canary chain shows the
// node's variant of iptables, a network plugin, and an administrator.
const foreignRules = `*mangle
:KUBE-IPTABLES-HINT - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
COMMIT
*nat
:KUBE-KUBELET-CANARY - [0:0]
:CNI-HOSTPORT - [0:0]
-A CNI-HOSTPORT -p tcp -m tcp --dport 8443 -j REDIRECT --to-ports 443
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT
-A OUTPUT -d 198.51.100.1/32 -j ACCEPT
-A POSTROUTING -s 198.51.100.0/24 -j MASQUERADE
COMMIT
*filter
:KUBE-KUBELET-CANARY - [0:0]
:KUBE-FIREWALL - [0:0]
:KUBERNETES-AUDIT - [0:0]
-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
-A KUBERNETES-AUDIT -m comment --comment "seen before KUBE-FORWARD" -j RETURN
-A INPUT -j KUBE-FIREWALL
-A OUTPUT -j KUBE-FIREWALL
-A FORWARD -j KUBERNETES-AUDIT
COMMIT
`

// guard is the rule that iptables mode adds to a chain of the kubelet. It stays even after --cleanup.
const guard = `-A KUBE-FIREWALL -s 127.0.0.0/8 -d 127.0.0.0/8 ! -i lo ! -o lo -m comment --comment "block forged localnet sources" -j DROP
`

// ours matches the chains that only kube-proxy creates; other chains that begin with KUBE belong to other programs.
var ours = regexp.MustCompile(`:KUBE-(SERVICES|EXTERNAL-SERVICES|NODEPORTS|FORWARD|POSTROUTING|MARK-MASQ|PROXY-|SVC-|SVL-|EXT-|FW-|SEP-)\S*`)

// node gives the tests access to node1's network namespace.
type node struct {
	t       *testing.T
	host    *netns.Host
	variant string
}

// newNode adds the rules of other programs, in one variant of iptables, and one in nftables too.
func newNode(t *testing.T, host *netns.Host, variant string) *node {
	n := &node{t, host, variant}
	n.must("nft", "add table inet foreign; add chain inet foreign kube-services { type filter hook input priority 10; }; "+
		"add rule inet foreign kube-services ip saddr 198.51.100.1 drop")
	for _, family := range []string{"iptables-", "ip6tables-"} {
		rules := foreignRules
		if family == "ip6tables-" {
			rules = strings.NewReplacer("127.0.0.0/8", "::1/128", "198.51.100.1/32", "2001:db8::1/128", "198.51.100.0/24", "2001:db8::/64").Replace(rules)
		}
		n.restore(family+variant, rules)
	}
	return n
}

// must runs a program in the node and returns its output.
func (n *node) must(program string, args ...string) string {
	n.t.Helper()
	out, err := n.host.Command(program, args...).Output()
	if err != nil {
		n.t.Fatal(err)
	}
	return string(out)
}

// restore adds rules with the iptables-restore of a family and variant.
func (n *node) restore(program, rules string) {
	n.t.Helper()
	command := n.host.Command(program+"-restore", "--wait", "--noflush")
	command.Stdin = strings.NewReader(rules)
	if out, err := command.CombinedOutput(); err != nil {
		n.t.Fatalf("%s-restore: %v: %s", program, err, out)
	}
}

// rules lists all chains and rules of both variants and families, and all nftables tables, without counters. Built-in
// chains are left out: listing a table creates them. So is the guard, which stays (docs/decisions/0028).
func (n *node) rules() string {
	n.t.Helper()
	var kept strings.Builder
	for _, program := range []string{"iptables-nft", "ip6tables-nft", "iptables-legacy", "ip6tables-legacy"} {
		for line := range strings.Lines(n.must(program + "-save")) {
			name, rest, _ := strings.Cut(line, " ")
			if strings.HasPrefix(line, "-A") && line != guard || strings.HasPrefix(line, ":") && strings.HasPrefix(rest, "-") {
				rest, _, _ = strings.Cut(rest, "[")
				kept.WriteString(program + " " + name + " " + strings.TrimSpace(rest) + "\n")
			}
		}
	}
	for line := range strings.Lines(n.must("nft", "list", "tables")) {
		if !strings.Contains(line, " ip filter") && !strings.Contains(line, " ip6 filter") &&
			!strings.HasSuffix(line, " nat\n") && !strings.HasSuffix(line, " mangle\n") { // iptables-nft's
			kept.WriteString(line)
		}
	}
	return kept.String() + n.must("nft", "list", "table", "inet", "foreign")
}

// of returns the modes that have rules in the node.
func of(rules string) map[string]bool {
	return map[string]bool{
		nftables: strings.Contains(rules, "table ip kube-proxy") || strings.Contains(rules, "table ip6 kube-proxy"),
		iptables: ours.MatchString(rules),
	}
}

// onlyIn waits until the rules of one mode exist and those of the other are gone. In an emulated machine that takes minutes:
// a list of the rules alone takes seconds. It rests for as long as its lists take, because on one processor they would otherwise
// leave too little for the connections.
func (n *node) onlyIn(mode, other string) bool {
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); {
		begun := time.Now()
		if has := of(n.rules()); has[mode] && !has[other] {
			return true
		}
		time.Sleep(max(50*time.Millisecond, time.Since(begun)))
	}
	return false
}

// TestKernelModeSwitch restarts kube-proxy repeatedly in the other mode, also before it has removed all rules of the
// previous mode, and meanwhile opens connections. No connection may fail, the rules of the other mode must be removed, and
// --cleanup must leave only the rules of other programs.
func TestKernelModeSwitch(t *testing.T) {
	t.Parallel()
	for _, variant := range []string{"nft", "legacy"} {
		t.Run(variant, func(t *testing.T) {
			t.Parallel()
			r, probes := newTrial(t)
			n := newNode(t, r.lab.Node1.Host, variant)
			before := n.rules()
			mode, other := nftables, iptables
			r.start(mode)
			r.serves(probes)
			streams := r.stream(probes)
			for i := range switches() {
				if i%4 == 3 { // kill it before it is done
					time.Sleep(time.Duration(r.random.Int64N(int64(500 * time.Millisecond))))
				} else if !n.onlyIn(mode, other) {
					t.Errorf("in mode %s the node has\n%s", mode, n.rules())
					break
				}
				if err := r.proxy.Kill(); err != nil {
					t.Fatal(err)
				}
				r.write(i%2, r.pods[i%len(r.pods):])
				mode, other = other, mode
				r.start(mode)
			}
			if !n.onlyIn(mode, other) {
				t.Errorf("at the end, in mode %s, the node has\n%s", mode, n.rules())
			}
			failed, total := streams.stop(t)
			if err := r.proxy.Kill(); err != nil {
				t.Fatal(err)
			}
			if t.Failed() {
				t.Log(r.log.String())
			}
			t.Logf("%d of %d connections failed over %d changes of mode", failed, total, switches())
			if out, err := r.cleanup(); err != nil {
				t.Errorf("--cleanup: %v: %s", err, out)
			}
			if after := n.rules(); after != before {
				t.Errorf("--cleanup leaves\n%s\nof what was before\n%s", after, before)
			}
		})
	}
}

// cleanup runs kube-proxy --cleanup.
func (r *trial) cleanup() (string, error) {
	out, err := r.lab.Node1.Command(r.program, "--cleanup").CombinedOutput()
	return string(out), err
}

// TestKernelCleanupFails runs --cleanup while rules of other programs jump to two of kube-proxy's chains, in both variants:
// everything except these chains must be removed, and the command must fail and name them. Without these rules a second
// run must remove the rest.
func TestKernelCleanupFails(t *testing.T) {
	t.Parallel()
	for _, variant := range []string{"nft", "legacy"} {
		t.Run(variant, func(t *testing.T) {
			t.Parallel()
			r, probes := newTrial(t)
			n := newNode(t, r.lab.Node1.Host, variant)
			before := n.rules()
			r.start(iptables)
			r.serves(probes)
			if !n.onlyIn(iptables, nftables) {
				t.Fatal(r.log.String())
			}
			if err := r.proxy.Kill(); err != nil {
				t.Fatal(err)
			}
			// Rules of the other mode, as of a process that was killed right after its start.
			n.must("nft", "add table ip kube-proxy; add chain ip kube-proxy services")
			const held = "*nat\n-A CNI-HOSTPORT -p udp -j KUBE-MARK-MASQ\nCOMMIT\n*filter\n-A KUBERNETES-AUDIT -j KUBE-FORWARD\nCOMMIT\n"
			n.restore("iptables-"+variant, held)
			out, err := r.cleanup()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 {
				t.Errorf("--cleanup: %v, want exit status 1", err)
			}
			for _, words := range []string{"chain KUBE-MARK-MASQ of table nat", "chain KUBE-FORWARD of table filter", "a rule of another program goes to it"} {
				if !strings.Contains(out, words) {
					t.Errorf("--cleanup does not print %q, but\n%s", words, out)
				}
			}
			left := n.rules()
			chains := ours.FindAllString(left, -1)
			slices.Sort(chains)
			if !slices.Equal(chains, []string{":KUBE-FORWARD", ":KUBE-MARK-MASQ"}) || of(left)[nftables] {
				t.Errorf("--cleanup leaves the chains %v, want only the two that are in use:\n%s", chains, left)
			}
			n.restore("iptables-"+variant, strings.ReplaceAll(held, "-A ", "-D "))
			if out, err := r.cleanup(); err != nil {
				t.Errorf("the second --cleanup: %v: %s", err, out)
			}
			if after := n.rules(); after != before {
				t.Errorf("--cleanup leaves\n%s\nof what was before\n%s", after, before)
			}
		})
	}
}
