package iptables_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/backendtest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend/iptables"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/cases"
	"github.com/seed-11a05479/kube-proxy/test/laws"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

// settings are those of the current network namespace.
type settings struct{}

func (settings) Read(name string) (string, error) {
	value, err := os.ReadFile("/proc/sys/" + name)
	return string(value[:max(0, len(value)-1)]), err
}

func (settings) Write(name, value string) error {
	return os.WriteFile("/proc/sys/"+name, []byte(value), 0)
}

// open opens the backend on the tables of the current network namespace.
func open(variant ipt.Variant) (*iptables.Backend, error) {
	var doors []ipt.Tables
	families := []ipt.Family{ipt.IPv4, ipt.IPv6}
	for _, family := range families {
		door, err := ipt.Open(context.Background(), family, variant)
		if err != nil {
			return nil, fmt.Errorf("install the package iptables: %w", err)
		}
		doors = append(doors, door)
	}
	notices, err := iptables.OpenNotices(variant, families...)
	if err != nil {
		return nil, err
	}
	return iptables.New(iptables.Options{Mark: 0x4000}, settings{}, notices, doors...), nil
}

// variants runs a test for both variants.
func variants(t *testing.T, test func(t *testing.T, variant ipt.Variant)) {
	for _, variant := range []ipt.Variant{ipt.NFT, ipt.Legacy} {
		t.Run(string(variant), func(t *testing.T) {
			t.Parallel()
			test(t, variant)
		})
	}
}

// opener is open with the signature that backendtest expects.
func opener(variant ipt.Variant) backendtest.Open {
	return func() (backend.Backend, error) { return open(variant) }
}

// TestKernelCases sends the packets of all cases: those of all backends, and those of this one.
func TestKernelCases(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, variant ipt.Variant) {
		for _, dir := range []string{shared, own} {
			backendtest.Run(t, dir, "iptables", opener(variant))
		}
	})
}

// TestKernelAffinityFlood opens connections from more clients than xt_recent remembers to one port.
func TestKernelAffinityFlood(t *testing.T) {
	variants(t, func(t *testing.T, variant ipt.Variant) {
		backendtest.AffinityFlood(t, shared, opener(variant), 5000)
	})
}

// TestKernelHostileObjects makes the attacks of test/hostile.
func TestKernelHostileObjects(t *testing.T) {
	variants(t, func(t *testing.T, variant ipt.Variant) {
		backendtest.RunHostile(t, "../../../../test/hostile", "iptables", plan.Limits{Elements: 25_000, EndpointsShared: true, Endpoints: 10_000}, opener(variant))
	})
}

// TestKernelEarlyClient opens a connection before there are rules.
func TestKernelEarlyClient(t *testing.T) {
	variants(t, func(t *testing.T, variant ipt.Variant) { backendtest.EarlyClient(t, shared, opener(variant)) })
}

// TestKernelRemoveFamily removes the rules of one family.
func TestKernelRemoveFamily(t *testing.T) {
	variants(t, func(t *testing.T, variant ipt.Variant) {
		backendtest.RemoveFamily(t, shared, iptables.Mode{Options: iptables.Options{Mark: 0x4000}, Settings: settings{}}, opener(variant))
	})
}

// TestKernelHairpinForwardDrop runs the hairpin cases on a node whose policy for forwarded packets is to drop them:
// connections to Services are accepted because of the mark.
func TestKernelHairpinForwardDrop(t *testing.T) {
	all := cases.Named(t, shared, "")
	variants(t, func(t *testing.T, variant ipt.Variant) {
		b := backendtest.NewBench(t, opener(variant))
		for _, program := range []string{"iptables-", "ip6tables-"} {
			if out, err := b.Lab.Node1.Command(program+string(variant), "-w", "-P", "FORWARD", "DROP").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
		sent := 0
		for _, c := range all {
			// Packets to other pods need a rule of the network plugin, which the lab does not have.
			c.Packets = slices.DeleteFunc(c.Packets, func(p cases.Packet) bool {
				return !strings.HasPrefix(c.Name, "hairpin") || !slices.Equal(p.Endpoints, []string{p.From})
			})
			if len(c.Packets) > 0 {
				b.Sync(t, c.Plan())
				b.Ask(t, c)
				sent += len(c.Packets)
			}
		}
		if sent < 8 {
			t.Errorf("only %d packets were sent", sent)
		}
	})
}

// shared are the cases of all backends, own those of this one.
const (
	shared = "../../../../test/cases"
	own    = "testdata/cases"
)

// case4 returns a case in IPv4.
func case4(t *testing.T, dir, name string) *cases.Case {
	t.Helper()
	return cases.Of(t, dir, name, cluster.IPv4)
}

// reopen replaces a bench's backend by a new one, as a restart does.
func reopen(t *testing.T, b *backendtest.Bench, variant ipt.Variant) {
	t.Helper()
	if err := b.Backend.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.Lab.Node1.Do(func() (err error) { b.Backend, err = open(variant); return err }); err != nil {
		t.Fatal(err)
	}
}

// TestKernelRestart checks for every third case, so in either family, and for every one with THOROUGH=1, that a new process writes
// nothing if the rules are right.
func TestKernelRestart(t *testing.T) {
	t.Parallel()
	all := append(cases.Named(t, shared, ""), cases.Named(t, own, "")...)
	variants(t, func(t *testing.T, variant ipt.Variant) {
		b := backendtest.NewBench(t, opener(variant))
		for i := 0; i < len(all); i += laws.Thorough(3, 1) {
			c := all[i]
			b.Sync(t, c.Plan())
			reopen(t, b, variant)
			if _, n := laws.Written(b.Sync(t, c.Plan())); n != 0 {
				t.Errorf("%s: a restart wrote %d rules", c.Name, n)
			}
		}
	})
}

// TestKernelDrift changes rules with iptables: Check reports it immediately, the next Sync repairs it, and rules of
// others are left alone.
func TestKernelDrift(t *testing.T) {
	variants(t, func(t *testing.T, variant ipt.Variant) {
		b := backendtest.NewBench(t, opener(variant))
		p := case4(t, shared, "source-ranges").Plan()
		b.Sync(t, p)
		check := func(after string, want int) {
			t.Helper()
			var drifts []backend.Drift
			err := b.Lab.Node1.Do(func() (err error) { drifts, err = b.Backend.Check(t.Context()); return err })
			if err != nil || len(drifts) != want {
				t.Fatalf("after %q Check returned %v, %v; want %d drifts", after, drifts, err, want)
			}
		}
		save := func() string {
			t.Helper()
			out, err := b.Lab.Node1.Command("iptables-"+string(variant)+"-save", "-t", "nat").Output()
			if err != nil {
				t.Fatal(err)
			}
			var kept []string
			for line := range strings.Lines(string(out)) {
				if line[0] == '-' {
					kept = append(kept, line)
				}
			}
			return strings.Join(kept, "")
		}
		want := save()
		check("", 0)
		for _, tamper := range []string{
			"-t nat -F", "-t nat -F KUBE-SERVICES", "-t nat -D OUTPUT 1", "-t nat -I KUBE-SERVICES -j RETURN", "-t filter -F",
			"-t nat -R KUBE-MARK-MASQ 1 -j MARK --set-xmark 0x8000/0x8000", "-t mangle -X KUBE-PROXY-CANARY",
		} {
			if out, err := b.Lab.Node1.Command("iptables-"+string(variant), append([]string{"-w"}, strings.Fields(tamper)...)...).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", tamper, err, out)
			}
			check(tamper, 1)
			b.Sync(t, p)
			if now := save(); now != want {
				t.Fatalf("after %s was repaired there is\n%s\nwant\n%s", tamper, now, want)
			}
		}
		if out, err := b.Lab.Node1.Command("iptables-"+string(variant), "-w", "-t", "nat", "-I", "PREROUTING", "-j", "ACCEPT").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		check("a rule of another program", 0)
	})
}

// TestKernelModified checks that the nft variant asks for checks only if somebody wrote nf_tables, and that the legacy
// variant must be checked periodically.
func TestKernelModified(t *testing.T) {
	mode := iptables.Mode{Options: iptables.Options{Mark: 0x4000}, Settings: settings{}}
	backendtest.Modified(t, shared, func() (backend.Backend, error) {
		return mode.Open(t.Context(), cluster.IPv4, cluster.IPv6)
	})
	lab := netns.Start(t, netns.Options{})
	if out, err := lab.Node1.Command("iptables-legacy", "-w", "-t", "nat", "-N", "KUBE-KUBELET-CANARY").CombinedOutput(); err != nil {
		t.Fatalf("iptables-legacy: %v: %s", err, out)
	}
	_ = lab.Node1.Do(func() error {
		b, err := mode.Open(t.Context(), cluster.IPv4, cluster.IPv6)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		if b.Modified() != nil {
			t.Error("in the legacy variant the backend asks for checks")
		}
		return nil
	})
}

// TestKernelCleanup checks that cleanup leaves nothing behind.
func TestKernelCleanup(t *testing.T) {
	variants(t, func(t *testing.T, variant ipt.Variant) {
		b := backendtest.NewBench(t, opener(variant))
		b.Sync(t, case4(t, shared, "source-ranges").Plan())
		b.Sync(t, case4(t, own, "localhost-node-ports").Plan())
		if err := b.Lab.Node1.Do(func() error { return b.Backend.Cleanup(t.Context()) }); err != nil {
			t.Fatal(err)
		}
		for _, program := range []string{"iptables-", "ip6tables-"} {
			out, err := b.Lab.Node1.Command(program + string(variant) + "-save").Output()
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(out)) {
				if strings.Contains(line, "KUBE") && !strings.Contains(line, "KUBE-FIREWALL") {
					t.Errorf("left: %s", line)
				}
			}
		}
	})
}

// layout is the case's Service as Kubernetes' kube-proxy programs it, with a chain for each endpoint.
const layout = `*filter
:KUBE-SERVICES - [0:0]
-A OUTPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
COMMIT
*nat
:KUBE-MARK-MASQ - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-CDGGSHYLG3RE2FKL - [0:0]
:KUBE-SEP-AAAAAAAAAAAAAAAA - [0:0]
:KUBE-SEP-BBBBBBBBBBBBBBBB - [0:0]
-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --xor-mark 0x4000
-A KUBE-POSTROUTING -j MASQUERADE --random-fully
-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m comment --comment "default/web:http cluster IP" -m tcp --dport 80 -j KUBE-SVC-CDGGSHYLG3RE2FKL
-A KUBE-SVC-CDGGSHYLG3RE2FKL ! -s 10.244.0.0/16 -d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j KUBE-MARK-MASQ
-A KUBE-SVC-CDGGSHYLG3RE2FKL -m statistic --mode random --probability 0.50000000000 -j KUBE-SEP-AAAAAAAAAAAAAAAA
-A KUBE-SVC-CDGGSHYLG3RE2FKL -j KUBE-SEP-BBBBBBBBBBBBBBBB
-A KUBE-SEP-AAAAAAAAAAAAAAAA -p tcp -m tcp -j DNAT --to-destination 10.244.1.2:8080
-A KUBE-SEP-BBBBBBBBBBBBBBBB -p tcp -m tcp -j DNAT --to-destination 10.244.2.2:8080
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
COMMIT
`

// TestKernelTakeOver sends packets all the time, while another kube-proxy's rules are taken over, processes restart,
// and rules are deleted and repaired: connections fail only while there are no rules.
func TestKernelTakeOver(t *testing.T) {
	variants(t, func(t *testing.T, variant ipt.Variant) {
		b := backendtest.NewBench(t, opener(variant))
		load := b.Lab.Node1.Command("iptables-"+string(variant)+"-restore", "-w", "--noflush")
		load.Stdin = strings.NewReader(layout)
		if out, err := load.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		p := case4(t, shared, "load-balancer").Plan()
		stream := netns.Probe{From: b.Lab.Client, To: netip.MustParseAddrPort("10.96.0.10:80"), Protocol: netns.TCP}.Stream(t.Context(), 500)
		b.Sync(t, p)
		for range 5 {
			reopen(t, b, variant)
			b.Sync(t, p)
			b.Sync(t, case4(t, shared, "node-port").Plan()) // the same Service, among others
		}
		if tally := stream.Stop(); tally.Failed() > 0 || len(tally.Pairs) == 0 {
			t.Errorf("%s", tally)
		}
		out, err := b.Lab.Node1.Command("iptables-" + string(variant) + "-save").Output()
		if err != nil || strings.Contains(string(out), "KUBE-SEP-AAAA") || strings.Count(string(out), "-A OUTPUT") != 3 {
			t.Errorf("%v, rules:\n%s", err, out)
		}
	})
}

// TestKernelPrepare checks that Prepare sets up node ports on localhost once if they are wanted, and otherwise changes
// nothing.
func TestKernelPrepare(t *testing.T) {
	netns.Enter(t, "iptables")
	prepare := func(serve bool) string {
		t.Helper()
		options := &plan.Options{NodePorts: plan.NodePortAddresses{Loopback: serve}}
		if err := (iptables.Mode{Options: iptables.Options{Mark: 0x4000}, Settings: settings{}}).Prepare(t.Context(), options); err != nil {
			t.Fatal(err)
		}
		routed, err := settings{}.Read("net/ipv4/conf/all/route_localnet")
		if err != nil {
			t.Fatal(err)
		}
		rules, err := exec.Command("iptables", "-S").CombinedOutput()
		if err != nil {
			t.Fatalf("iptables -S: %v\n%s", err, rules)
		}
		return "route_localnet " + routed + "\n" + string(rules)
	}
	if got := prepare(false); !strings.HasPrefix(got, "route_localnet 0") || strings.Contains(got, "KUBE-") {
		t.Errorf("without node ports on localhost:\n%s", got)
	}
	once, twice := prepare(true), prepare(true)
	for _, want := range []string{"route_localnet 1\n", "-A INPUT -j KUBE-FIREWALL\n", "-A OUTPUT -j KUBE-FIREWALL\n", "-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8", "-A KUBE-FIREWALL -s 127.0.0.0/8 -d 127.0.0.0/8 ! -i lo ! -o lo"} {
		if strings.Count(once, want) != 1 {
			t.Errorf("%q is not present exactly once:\n%s", want, once)
		}
	}
	if once != twice {
		t.Errorf("the second time:\n%s\nwant\n%s", twice, once)
	}
}
