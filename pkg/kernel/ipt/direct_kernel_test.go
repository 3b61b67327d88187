package ipt

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// encodable are rules of the known forms. The addresses are those for IPv4; NAT and FILTER before a rule select its table.
var encodable = []string{
	"NAT -d 0.0.0.5/0.0.0.15 -g KUBE-B",
	"NAT -d 10.96.0.0/16 -j KUBE-B",
	"NAT -d 10.96.0.0/12 -j KUBE-B",
	"NAT -d 10.96.0.21/32 -p tcp -m comment --comment \"a/b:c cluster IP\" -m tcp --dport 80 -j KUBE-B",
	"NAT ! -s 10.244.0.0/17 -d 10.96.0.21/32 -p udp -m comment --comment \"a/b cluster IP\" -m udp --dport 53 -j KUBE-B",
	"NAT -d 10.96.0.21/32 ! -i cbr+ -p sctp -m comment --comment \"a/b cluster IP\" -m sctp --dport 53 -j KUBE-B",
	"NAT -i eth0 -m comment --comment \"a/b from local pods\" -j KUBE-B",
	"NAT -p tcp -g KUBE-B",
	"NAT -p sctp -m sctp --dport 4096:8191 -g KUBE-B",
	"NAT -p tcp -m tcp --dport 4096:8191 -g KUBE-B",
	"NAT -p tcp -m tcp --dport 0:4095 -g KUBE-B",
	"NAT -p udp -m udp --dport 61440:65535 -g KUBE-B",
	"NAT -p sctp -m sctp --dport 0:4095 -g KUBE-B",
	"NAT -p tcp -m comment --comment \"a/b:c\" -m statistic --mode random --probability 0.33333333349 -j DNAT --to-destination 10.0.0.1:80",
	"NAT -p tcp -m statistic --mode nth --every 3 --packet 0 -j DNAT --to-destination 10.0.0.1:80",
	"NAT -p udp -m statistic --mode random --probability 0.50000000000 -m recent --set --name KUBE-SEP-X --mask 255.255.255.255 --rsource -j DNAT --to-destination 10.0.0.1:80",
	"NAT -p sctp -m recent --update --seconds 10800 --reap --name KUBE-SEP-X --mask 255.255.255.255 --rsource -j DNAT --to-destination 10.0.0.1:80",
	"NAT -m hashlimit --hashlimit-above 1501/sec --hashlimit-burst 1500 --hashlimit-name KUBE-FW-X -j ACCEPT",
	"NAT -m hashlimit --hashlimit-above 3/sec --hashlimit-burst 3 --hashlimit-mode srcip --hashlimit-name KUBE-FW-X-CLIENT --hashlimit-htable-max 20000 -j ACCEPT",
	"NAT -m connlimit --connlimit-above 100 --connlimit-mask 0 --connlimit-saddr -j ACCEPT",
	"NAT -m connlimit --connlimit-above 100 --connlimit-mask 32 --connlimit-saddr -j ACCEPT",
	"NAT -s 10.0.0.2/32 -m comment --comment \"a/b:c\" -j KUBE-B",
	"NAT ! -d 127.0.0.0/8 -m comment --comment \"node ports\" -m addrtype --dst-type LOCAL -j KUBE-B",
	"NAT -d 127.0.0.0/8 ! -o lo -m comment --comment \"node ports\" -j RETURN",
	"NAT -m comment --comment \"a/b from this node\" -m addrtype --src-type LOCAL -j KUBE-B",
	"NAT -s 10.96.0.0/16 -m addrtype ! --src-type LOCAL -j KUBE-B",
	"NAT -j MARK --set-xmark 0x4000/0x4000",
	"NAT -j MARK --set-xmark 0x4000/0x0",
	"NAT -m mark ! --mark 0x4000/0x4000 -j RETURN",
	"NAT -j ACCEPT",
	"NAT -j KUBE-B",
	"NAT -p tcp",
	"NAT -m comment --comment \"a b\" -j MASQUERADE --random-fully",
	"FILTER -m comment --comment \"kubernetes service traffic requiring SNAT\" -j DROP",
	"FILTER -d 10.96.0.21/32 -p tcp -m comment --comment \"a/b has no endpoints\" -m addrtype --dst-type LOCAL -m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable",
	"FILTER -d 10.96.0.22/32 -p tcp -m comment --comment \"a/b has no endpoints\" -m tcp --dport 80 -j REJECT --reject-with tcp-reset",
	"FILTER -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
	"FILTER -s 127.0.0.0/8 -d 127.0.0.0/8 ! -i lo ! -o lo -m comment --comment \"block forged localnet sources\" -j DROP",
	"FILTER -m conntrack --ctstate INVALID -j DROP",
	"FILTER -m conntrack ! --ctstate NEW,DNAT -j RETURN",
	"FILTER -m comment --comment counted -m mark --mark 0x4000/0x4000 -m conntrack --ctorigdst 10.0.0.0/8",
}

// addresses6 replaces the addresses in encodable by those for IPv6.
var addresses6 = strings.NewReplacer("10.96.0.0/16", "fd00:96::/64", "10.96.0.0/12", "fd00:96::/60", "10.96.0.21/32", "fd00:96::15/128", "10.96.0.22/32", "fd00:96::16/128",
	"10.244.0.0/17", "fd00:244::/49", "10.0.0.2/32", "fd00::2/128", "--connlimit-mask 32", "--connlimit-mask 128")

// expressionsOf dumps the expressions of a chain's rules.
func expressionsOf(t *testing.T, family Family, table, chain string) (all [][]byte) {
	t.Helper()
	r, err := openNFTRequests(family)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	err = r.rules(table, chain, func(m nf.Rule) {
		all = append(all, bytes.Clone(m.Attr(unix.NFTA_RULE_EXPRESSIONS)))
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// kernelDirect opens tables and the direct way to write them.
func kernelDirect(t *testing.T, family Family) (*kernelTables, *direct) {
	t.Helper()
	tables := openKernel(t, family, NFT)
	for _, table := range []string{"filter", "nat"} { // which iptables creates
		if _, err := tables.Programs.(*programs).run(t.Context(), "*"+table+"\n:KUBE-B - [0:0]\nCOMMIT\n", tables.Programs.(*programs).restore, "--noflush"); err != nil {
			t.Fatal(err)
		}
	}
	return tables, tables.direct
}

// TestKernelEncodesAsIptables writes each rule directly, in both encodings, and with iptables-restore: the kernel must hold the
// same bytes as in the encoding of the installed release, and iptables must list the rule whatever its encoding.
func TestKernelEncodesAsIptables(t *testing.T) {
	for _, family := range []Family{IPv4, IPv6} {
		t.Run(string(family), func(t *testing.T) {
			tables, direct := kernelDirect(t, family)
			rules := append(slices.Clone(encodable), "FILTER -m comment --comment "+strings.Repeat("x", 255)+" -j DROP")
			for _, rule := range rules { // no subtests: they would leave the thread, and its namespace
				if family == IPv6 {
					rule = addresses6.Replace(in6(rule))
				}
				table, rule, _ := strings.Cut(rule, " ")
				encodedAsIptables(t, tables, direct, strings.ToLower(table), rule)
			}
		})
	}
}

func encodedAsIptables(t *testing.T, tables *kernelTables, direct *direct, table, text string) {
	t.Helper()
	input := "*" + table + "\n:KUBE-PROGRAM - [0:0]\n-A KUBE-PROGRAM " + text + "\nCOMMIT\n"
	if err := tables.Restore(t.Context(), input); err != nil {
		t.Error(text, err)
		return
	}
	value := rule(t, text)
	for _, newer := range []bool{false, true} {
		direct.encoder.newer = newer
		if err := direct.write(t.Context(), &Transaction{Table: table, Chains: []Chain{{"KUBE-DIRECT", []Rule{value}}}}); err != nil {
			t.Error(text, err)
			return
		}
		if listed, err := tables.Rules(t.Context(), table, "KUBE-DIRECT"); err != nil || len(listed) != 1 || listed[0] != text {
			t.Errorf("newer encoding %t: iptables lists %q, %v, want %q", newer, listed, err, text)
		}
		if newer != tables.Programs.(*programs).since(1, 8, 10) {
			continue
		}
		got, want := expressionsOf(t, tables.family, table, "KUBE-DIRECT"), expressionsOf(t, tables.family, table, "KUBE-PROGRAM")
		if len(got) != 1 || len(want) != 1 || !bytes.Equal(got[0], want[0]) {
			t.Errorf("%s\nthe kernel holds %d rules\n%x\nwith iptables-restore %d\n%x", text, len(got), got, len(want), want)
		}
	}
}

// TestKernelDirectOrProgram checks which transactions are written directly: those in chains whose names show that they are user
// chains or built in, with rules that were not listed and that iptables would not refuse.
func TestKernelDirectOrProgram(t *testing.T) {
	_, d := kernelDirect(t, IPv4)
	in := func(chain string, rules ...Rule) *Transaction {
		return &Transaction{Table: "nat", Chains: []Chain{{chain, rules}}}
	}
	to := func(target Target, matches ...Match) Rule { return Rule{Matches: matches, Target: target} }
	six := netip.MustParseAddrPort("[fd00::1]:80")
	for _, test := range []struct {
		t    *Transaction
		want error
	}{
		{in("KUBE-A", to(Jump("KUBE-B"))), nil},
		{&Transaction{Table: "nat", Deleted: []string{"KUBE-A"}}, nil},
		{in("KUBE-A", to(Jump("KUBE-NONE"))), unix.ENOENT},
		{&Transaction{Table: "mangle", Chains: []Chain{{Name: "KUBE-A"}}}, unix.ENOENT},
		{&Transaction{Table: "nat", Chains: []Chain{{"KUBE-A", []Rule{to(Jump("KUBE-B"))}}}, Deleted: []string{"KUBE-B"}}, unix.EBUSY},
		{in("INPUT"), errIndirect},
		{in("A", to(Return)), errIndirect},
		{&Transaction{Table: "nat", Inserted: []ChainRule{{"KUBE-B", to(Drop)}}}, errIndirect},
		{in("KUBE-A", Listed("-j RETURN")), errIndirect},
		{in("KUBE-A", to(Jump("NFQUEUE"))), errIndirect},
		{in("KUBE-A", to(DNAT(six), TCP)), errIndirect},
		{in("KUBE-A", to(Return, Destination(netip.PrefixFrom(six.Addr(), 128)))), errIndirect},
		{in("KUBE-A", to(Return, TCP, Ports{UDP, 5, 5})), errIndirect},
		{in("KUBE-A", to(Return, In("sixteen-letters-"))), errIndirect},
		{&Transaction{Table: "nat"}, errIndirect},
	} {
		if err := d.write(t.Context(), test.t); !errors.Is(err, test.want) {
			t.Errorf("%q: %v, want %v", test.t.Text(), err, test.want)
		}
	}
}

// TestKernelCompare compares chains that iptables-restore wrote with expected rules, and then the same rules in both encodings.
func TestKernelCompare(t *testing.T) {
	for _, family := range []Family{IPv4, IPv6} {
		t.Run(string(family), func(t *testing.T) {
			tables, direct := kernelDirect(t, family)
			texts := []string{
				"-d 10.96.0.21/32 -p tcp -m comment --comment \"a/b:c cluster IP\" -m tcp --dport 80 -j KUBE-B",
				"! -s 10.244.0.0/17 -p udp -m statistic --mode random --probability 0.33333333349 -j DNAT --to-destination 10.0.0.1:80",
				"-m mark ! --mark 0x4000/0x4000 -j RETURN",
			}
			ip := "ip"
			if family == IPv6 {
				ip = "ip6"
				for i := range texts {
					texts[i] = addresses6.Replace(in6(texts[i]))
				}
			}
			input := "*nat\n:KUBE-A - [0:0]\n"
			var rules []Rule
			for _, text := range texts {
				input += "[7:700] -A KUBE-A " + text + "\n"
				rules = append(rules, rule(t, text))
			}
			if err := tables.Restore(t.Context(), input+"COMMIT\n"); err != nil {
				t.Fatal(err)
			}
			compare := func(what string, want bool, expected ...Rule) {
				t.Helper()
				byChain := map[string][]Rule{"KUBE-A": expected}
				compared, err := tables.Compare(t.Context(), "nat", func(chain string) ([]Rule, bool) { return byChain[chain], false })
				if err != nil {
					t.Fatal(err)
				}
				if compared["KUBE-A"].Equal != want || !compared["KUBE-B"].Equal || compared["KUBE-A"].Rules == 0 {
					t.Errorf("%s: %v, want %v for KUBE-A", what, compared, want)
				}
				some, err := tables.Compare(t.Context(), "nat", func(string) ([]Rule, bool) { return expected, false }, "KUBE-A", "MISSING")
				if err != nil || len(some) != 1 || some["KUBE-A"] != compared["KUBE-A"] {
					t.Errorf("%s: KUBE-A alone is %v, %v; want %v", what, some, err, compared["KUBE-A"])
				}
			}
			returns := Rule{Target: Return}
			for among, want := range map[*Rule]bool{&rules[1]: true, &returns: false} {
				compared, err := tables.Compare(t.Context(), "nat", func(string) ([]Rule, bool) { return []Rule{*among, rules[0]}, true }, "KUBE-A")
				if err != nil || compared["KUBE-A"].Equal != want {
					t.Errorf("among others: %v, %v, want %v of %s", compared, err, want, among.Text())
				}
			}
			compare("the same rules", true, rules...)
			compare("no rules", false)
			compare("a rule less", false, rules[:2]...)
			compare("a rule more", false, append(slices.Clone(rules), returns)...)
			compare("another order", false, rules[1], rules[0], rules[2])
			compare("another mark", false, rules[0], rules[1], Rule{Matches: []Match{Not(Mark{0x8000, 0x4000})}, Target: Return})
			compare("another target", false, rules[0], rules[1], Rule{Matches: []Match{Not(Mark{0x4000, 0x4000})}, Target: Accept})
			compare("a rule that was listed", false, rules[0], rules[1], Listed(texts[2]))
			if out, err := exec.Command("nft", "add", "rule", ip, "nat", "KUBE-A", "counter", "return").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			compare("the rules, and one of nft's", true, append(slices.Clone(rules), returns)...)
			if out, err := exec.Command("nft", "add", "rule", ip, "nat", "KUBE-A", "return").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			compare("a rule without a counter", false, append(slices.Clone(rules), returns, returns)...)
			for _, newer := range []bool{false, true} {
				direct.encoder.newer = newer
				if err := direct.write(t.Context(), &Transaction{Table: "nat", Chains: []Chain{{"KUBE-A", rules}}}); err != nil {
					t.Fatal(err)
				}
				what := fmt.Sprintf("newer encoding %t", newer)
				compare(what, true, rules...)
				compare(what+", another protocol", false, rule(t, strings.Replace(texts[0], "tcp", "udp", 2)), rules[1], rules[2])
			}
		})
	}
}
