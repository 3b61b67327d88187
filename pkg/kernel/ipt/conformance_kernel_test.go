package ipt_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt/ipttest"
)

// everyKernel runs a test on the kernel's tables of each variant and family.
func everyKernel(t *testing.T, test func(t *testing.T, tables ipt.Restorer)) {
	for _, variant := range []ipt.Variant{ipt.NFT, ipt.Legacy} {
		for _, family := range []ipt.Family{ipt.IPv4, ipt.IPv6} {
			t.Run(fmt.Sprint(variant, family), func(t *testing.T) { test(t, ipt.OpenKernel(t, family, variant)) })
		}
	}
}

// conformance is a sequence of inputs, and whether iptables refuses them. The addresses are those for IPv4.
var conformance = []struct {
	name, input string
	refused     bool
}{
	{"chains that go to each other", "*nat\n:A - [0:0]\n:B - [0:0]\n-A A -j B\n-A B -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.0.0.1:80\nCOMMIT\n", false},
	{"a jump to a missing chain", "*nat\n:C - [0:0]\n-A C -j NOWHERE\nCOMMIT\n", true},
	{"a refused input has no effect", "*nat\n-A C -j RETURN\nCOMMIT\n", true},
	{"a chain in use cannot be deleted", "*nat\n:B - [0:0]\n-X B\nCOMMIT\n", true},
	{"a chain that does not exist cannot be deleted", "*nat\n-X NOWHERE\nCOMMIT\n", true},
	{"a rewritten chain has only its new rules", "*nat\n:B - [0:0]\n-A B -p udp -m udp --dport 53 -j RETURN\nCOMMIT\n", false},
	{"an invalid address", "*nat\n:C - [0:0]\n-A C -d 10.0.0.300/32 -j RETURN\nCOMMIT\n", true},
	{"a port without a protocol", "*nat\n:C - [0:0]\n-A C -j DNAT --to-destination 10.0.0.1:80\nCOMMIT\n", true},
	{"an unknown match", "*nat\n:C - [0:0]\n-A C -m nonesuch -j RETURN\nCOMMIT\n", true},
	{"a target of another table", "*nat\n:C - [0:0]\n-A PREROUTING -j C\n-A C -j REJECT\nCOMMIT\n", true},
	{"a name that is too long", "*nat\n:" + strings.Repeat("X", 29) + " - [0:0]\nCOMMIT\n", true},
	{"the longest name", "*nat\n:" + strings.Repeat("X", 28) + " - [0:0]\nCOMMIT\n", false},
	{"a comment that is cut off", "*nat\n:C - [0:0]\n-A C -m comment --comment \"" + strings.Repeat("x", 256) + "\" -j RETURN\nCOMMIT\n", false},
	{"masks with holes, and goto", "*nat\n:D - [0:0]\n:E - [0:0]\n-A D -d 0.0.0.5/0.0.0.15 -g E\nCOMMIT\n", false},
	{"lists of clients", "*nat\n:D - [0:0]\n-A D -p tcp -m comment --comment \"ns/name:port\" -m statistic --mode random --probability 0.33333 -m recent --set --name LIST --mask 255.255.255.255 --rsource -j DNAT --to-destination 10.0.0.1:80\nCOMMIT\n", false},
	{"marks", "*nat\n:D - [0:0]\n-A D -j MARK --or-mark 0x4000\n-A D -j MARK --xor-mark 0x4000\n-A D -m mark ! --mark 0x4000/0x4000 -j MASQUERADE --random-fully\nCOMMIT\n", false},
	{"types of addresses, states", "*filter\n:D - [0:0]\n-A D ! -d 127.0.0.0/8 -p sctp -m addrtype --dst-type LOCAL -m sctp --dport 1:9 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j REJECT --reject-with icmp-port-unreachable\n-A D ! -i cbr+ -j DROP\nCOMMIT\n", false},
	{"a reset", "*filter\n:F - [0:0]\n-A F -p tcp -m tcp --dport 80 -j REJECT --reject-with tcp-reset\nCOMMIT\n", false},
	{"a chain with rules cannot be deleted", "*filter\n-X D\nCOMMIT\n", true},
	{"a rule without a target, with the original destination", "*filter\n:D - [0:0]\n-A D -m comment --comment \"counted only\" -m mark --mark 0x4000/0x4000 -m conntrack --ctorigdst 10.0.0.0/8\nCOMMIT\n", false},
	{"a built-in chain keeps its rules", "*filter\n:INPUT ACCEPT [0:0]\n-I INPUT -m comment --comment x -j D\nCOMMIT\n", false},
	{"the declaration of a built-in chain empties nothing", "*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n", false},
	{"masquerading of packets that arrive", "*nat\n:E - [0:0]\n-A E -j MASQUERADE\n-I PREROUTING -j E\nCOMMIT\n", true},
	{"translation of packets that leave", "*nat\n:D - [0:0]\n:E - [0:0]\n-A E -p tcp -j DNAT --to-destination 10.0.0.1:80\n-A D -j E\n-I POSTROUTING -j D\nCOMMIT\n", true},
	{"masquerading of packets that leave", "*nat\n:E - [0:0]\n-A E -j MASQUERADE\n-I POSTROUTING -j E\nCOMMIT\n", false},
	{"an unknown table", "*nonesuch\nCOMMIT\n", true},
	{"chains are deleted before those they jump to", "*nat\n:A - [0:0]\n:B - [0:0]\n-X A\n-X B\nCOMMIT\n", false},
}

// TestKernelConformance applies the same inputs to the kernel's tables and to a Fake: both must accept and refuse the same, and
// save the same. With longer names of chains, the inputs are written without iptables-restore where that is possible.
func TestKernelConformance(t *testing.T) {
	everyKernel(t, func(t *testing.T, tables ipt.Restorer) { conforms(t, tables, "${2}") })
}

func TestKernelConformanceLongNames(t *testing.T) {
	everyKernel(t, func(t *testing.T, tables ipt.Restorer) { conforms(t, tables, "KUBE-${2}") })
}

var shortNames = regexp.MustCompile(`(?m)([: ])([A-E])( |$)`)

func conforms(t *testing.T, tables ipt.Restorer, names string) {
	t.Helper()
	fake := ipttest.New(tables.Family(), tables.Features().Variant)
	for _, step := range conformance {
		step.input = shortNames.ReplaceAllString(step.input, "${1}"+names+"${3}")
		if tables.Family() == ipt.IPv6 {
			step.input = ipt.In6(step.input)
		}
		for name, door := range map[string]ipt.Restorer{"kernel": tables, "fake": fake} {
			err := door.Restore(context.Background(), step.input)
			var refused *ipt.RestoreError
			if (err != nil) != step.refused || err != nil && !errors.As(err, &refused) {
				t.Errorf("%s: the %s returns %v", step.name, name, err)
			}
		}
		for _, table := range []string{"nat", "filter"} {
			if kernel, fake := saved(t, tables, table), saved(t, fake, table); kernel != fake {
				t.Fatalf("%s: the kernel has\n%s\nthe fake\n%s", step.name, kernel, fake)
			}
		}
	}
}

// TestKernelConformanceOfWrite writes chains that nothing leads to with Write, which gives the kernel bytes where that is possible.
func TestKernelConformanceOfWrite(t *testing.T) {
	everyKernel(t, func(t *testing.T, tables ipt.Restorer) {
		reject := ipt.Unreachable4
		to := netip.MustParseAddrPort("10.0.0.1:80")
		if tables.Family() == ipt.IPv6 {
			reject, to = ipt.Unreachable6, netip.MustParseAddrPort("[fd00::1]:80")
		}
		targets := map[string][]ipt.Target{"nat": {ipt.DNAT(to), ipt.Masquerade{}}, "filter": {reject}}
		for name, door := range map[string]ipt.Restorer{"kernel": tables, "fake": ipttest.New(tables.Family(), tables.Features().Variant)} {
			for table := range targets { // so that none of the refusals below is that of a missing table
				if err := door.Restore(t.Context(), "*"+table+"\n:KUBE-A - [0:0]\nCOMMIT\n"); err != nil {
					t.Fatal(err)
				}
			}
			for in := range targets {
				for of, all := range targets {
					for _, target := range all {
						rule := ipt.Rule{Matches: []ipt.Match{ipt.TCP}, Target: target}
						err := door.Write(t.Context(), &ipt.Transaction{Table: in, Chains: []ipt.Chain{{Name: "KUBE-A", Rules: []ipt.Rule{rule}}}})
						if _, refused := errors.AsType[*ipt.RestoreError](err); refused != (in != of) || err != nil && !refused {
							t.Errorf("%s: %q in table %s: %v", name, rule.Text(), in, err)
						}
					}
				}
			}
		}
	})
}

// saved returns a table without comments and chains' counters.
func saved(t *testing.T, tables ipt.Restorer, table string) string {
	t.Helper()
	text, err := tables.Save(context.Background(), table)
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	for line := range strings.Lines(text) {
		if line[0] == ':' {
			line, _, _ = strings.Cut(line, "[")
		}
		if line[0] != '#' && !strings.HasPrefix(line, ":INPUT") && line != "COMMIT\n" && line[0] != '*' {
			kept = append(kept, strings.TrimSpace(line))
		}
	}
	// A legacy table that nothing has read does not exist; one with only built-in chains is the same.
	out := strings.Join(kept, "\n")
	if slices.Contains([]string{":PREROUTING ACCEPT\n:OUTPUT ACCEPT\n:POSTROUTING ACCEPT", ":FORWARD ACCEPT\n:OUTPUT ACCEPT"}, out) {
		return ""
	}
	return out
}

// TestKernelSingleRules adds and deletes single rules.
func TestKernelSingleRules(t *testing.T) {
	const toMine = `-m comment --comment "to mine" -j KUBE-MINE`
	mine, returns, accepts := ipt.Rule{Matches: []ipt.Match{ipt.Comment("to mine")}, Target: ipt.Jump("KUBE-MINE")}, ipt.Rule{Target: ipt.Return}, ipt.Rule{Target: ipt.Accept}
	everyKernel(t, func(t *testing.T, tables ipt.Restorer) {
		for name, door := range map[string]ipt.Restorer{"kernel": tables, "fake": ipttest.New(tables.Family(), tables.Features().Variant)} {
			steps := []error{
				door.Restore(context.Background(), "*nat\n:KUBE-MINE - [0:0]\nCOMMIT\n"),
				door.Insert(t.Context(), "nat", ipt.ChainRule{Chain: "PREROUTING", Rule: mine}, ipt.ChainRule{Chain: "OUTPUT", Rule: mine}),
				door.Insert(t.Context(), "nat", ipt.ChainRule{Chain: "PREROUTING", Rule: returns}, ipt.ChainRule{Chain: "PREROUTING", Rule: mine}, ipt.ChainRule{Chain: "PREROUTING", Rule: accepts}),
				door.Append(t.Context(), "nat", "SHARED", returns),
				door.Append(t.Context(), "nat", "SHARED", returns),
				door.Delete(t.Context(), "nat", "PREROUTING", returns),
				door.Delete(t.Context(), "nat", "PREROUTING", returns),
			}
			if err := errors.Join(steps...); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for chain, want := range map[string]string{"PREROUTING": "[-j ACCEPT " + toMine + "]", "OUTPUT": "[" + toMine + "]", "SHARED": "[-j RETURN]"} {
				if rules, err := door.Rules(t.Context(), "nat", chain); err != nil || fmt.Sprint(rules) != want {
					t.Errorf("%s: %s has %v, %v; want %s", name, chain, rules, err, want)
				}
			}
			for rule, want := range map[*ipt.Rule]bool{&mine: true, &returns: false, &accepts: true} {
				compared, err := door.Compare(t.Context(), "nat", func(string) ([]ipt.Rule, bool) { return []ipt.Rule{*rule}, true }, "PREROUTING", "MISSING")
				if !errors.Is(err, errors.ErrUnsupported) && (err != nil || len(compared) != 1 || compared["PREROUTING"].Equal != want) {
					t.Errorf("%s: %s is a rule: %v, %v", name, rule.Text(), compared, err)
				}
			}
			if err := door.Insert(t.Context(), "nat", ipt.ChainRule{Chain: "OUTPUT", Rule: accepts}, ipt.ChainRule{Chain: "PREROUTING", Rule: ipt.Rule{Target: ipt.Jump("NOWHERE")}}); err == nil {
				t.Errorf("%s: a jump to a missing chain was accepted", name)
			}
			if rules, err := door.Rules(t.Context(), "nat", "OUTPUT"); err != nil || len(rules) != 1 {
				t.Errorf("%s: OUTPUT has %v, %v after a refused transaction, want the rule of before", name, rules, err)
			}
		}
	})
}

// ruleCounts returns how many rules chains of a table have, and skips the test of tables that cannot be compared.
func ruleCounts(t *testing.T, tables ipt.Restorer, table string, chains ...string) map[string]int {
	t.Helper()
	compared, err := tables.Compare(t.Context(), table, func(string) ([]ipt.Rule, bool) { return nil, false }, chains...)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("Compare is not supported")
	}
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for name, c := range compared {
		counts[name] = c.Rules
		if c.Equal != (c.Rules == 0) {
			t.Errorf("chain %s has %d rules, and those expected, which are none: %t", name, c.Rules, c.Equal)
		}
	}
	return counts
}

// TestKernelNewChain reads one table, which lists the chains of all, and creates a chain in another: it is found.
func TestKernelNewChain(t *testing.T) {
	everyKernel(t, func(t *testing.T, tables ipt.Restorer) {
		for _, created := range []string{"A", "B"} {
			ruleCounts(t, tables, "filter")
			if err := tables.Restore(t.Context(), "*nat\n:"+created+" - [0:0]\nCOMMIT\n"); err != nil {
				t.Fatal(err)
			}
			counts := ruleCounts(t, tables, "nat")
			if _, exists := counts[created]; !exists {
				t.Errorf("nat lacks chain %s: %v", created, counts)
			}
		}
	})
}

// TestKernelPackets sends packets and reads the rules' counters: of a user chain, a built-in chain, a missing chain, a missing
// table, and a rewritten chain.
func TestKernelPackets(t *testing.T) {
	everyKernel(t, func(t *testing.T, tables ipt.Restorer) {
		fake := ipttest.New(tables.Family(), tables.Features().Variant)
		const past, counted = 3, "-p udp -m udp --dport 9"
		for _, door := range []ipt.Restorer{tables, fake} {
			want := func(table, chain string, want ...uint64) {
				t.Helper()
				if packets, err := door.Packets(t.Context(), table, chain); err != nil || !slices.Equal(packets[chain], want) {
					t.Errorf("%T: the rules of %s in table %s have matched %v packets, %v; want %v", door, chain, table, packets, err, want)
				}
			}
			restore := func(input string) {
				t.Helper()
				if err := door.Restore(context.Background(), "*filter\n"+input+"COMMIT\n"); err != nil {
					t.Fatalf("%T: %v", door, err)
				}
			}
			want("filter", "B")
			restore(":A - [0:0]\n:B - [0:0]\n:C - [0:0]\n-A A -p tcp -j B\n-A B -p tcp -j DROP\n-A B " + counted + "\n-A B -p tcp\n" +
				"-A OUTPUT " + counted + " -j B\n-A OUTPUT -p tcp -j A\n")
			if door == fake {
				fake.Count("filter", "OUTPUT", counted, past)
				fake.Count("filter", "B", counted, past)
			} else {
				toItself(t, door.Family(), past)
			}
			want("filter", "A", 0)
			want("filter", "B", 0, past, 0)
			want("filter", "C")
			want("filter", "OUTPUT", past, 0)
			want("filter", "NONE")
			want("nat", "A")
			restore(":B - [0:0]\n-A B " + counted + "\n")
			want("filter", "B", 0)
		}
		list := map[ipt.Family]string{ipt.IPv4: "ip_tables_names", ipt.IPv6: "ip6_tables_names"}[tables.Family()]
		legacy, _ := os.ReadFile("/proc/thread-self/net/" + list)
		if tables.Features().Variant == ipt.Legacy && strings.Contains(string(legacy), "nat") {
			t.Error("reading created a legacy table")
		}
	})
}

// toItself sends datagrams to the namespace's own loopback address, port 9.
func toItself(t *testing.T, family ipt.Family, datagrams int) {
	t.Helper()
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	loopback := net.IPv4(127, 0, 0, 1)
	if family == ipt.IPv6 {
		loopback = net.IPv6loopback
	}
	from, err := net.ListenUDP("udp", &net.UDPAddr{IP: loopback})
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	for range datagrams {
		if _, err := from.WriteTo([]byte("counted"), &net.UDPAddr{IP: loopback, Port: 9}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKernelEmptyChains is the same with the kernel's tables, among them built-in chains with a policy.
func TestKernelEmptyChains(t *testing.T) {
	everyKernel(t, emptyChains)
}
