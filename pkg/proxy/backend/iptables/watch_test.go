package iptables

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt/ipttest"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
	"github.com/seed-11a05479/kube-proxy/test/laws"
)

// oneFake returns a backend on one fake.
func oneFake(t testing.TB, variant ipt.Variant) (*Backend, *ipttest.Fake) {
	door := ipttest.New(ipt.IPv4, variant)
	return newBackend(t, settings(nil), door), door
}

// tamper changes the tables as another program would.
func tamper(t *testing.T, door interface{ WriteExternally(input string) error }, input string) {
	t.Helper()
	if err := door.WriteExternally(input); err != nil {
		t.Fatal(err)
	}
}

// check checks the number of drifts.
func check(t *testing.T, b *Backend, want int) {
	t.Helper()
	drifts, err := b.Check(context.Background())
	if err != nil || len(drifts) != want {
		t.Fatalf("Check returned %v, %v; want %d drifts", drifts, err, want)
	}
}

// TestCheckFindsTampering changes each kind of object in each table externally.
func TestCheckFindsTampering(t *testing.T) {
	service := portKey{"default/service-1", cluster.TCP}.chain(prefixCluster)
	ways := map[string]func(*testing.T, *ipttest.Fake) error{}
	for name, input := range map[string]string{
		"empty a service":        "*nat\n-F " + service + "\nCOMMIT\n",
		"empty the dispatch":     "*nat\n-F KUBE-SERVICES\nCOMMIT\n",
		"add a rule":             "*nat\n-I KUBE-SERVICES -j RETURN\nCOMMIT\n",
		"replace a rule":         "*nat\n:KUBE-MARK-MASQ - [0:0]\n-A KUBE-MARK-MASQ -j MARK --set-xmark 0x8000/0x8000\nCOMMIT\n",
		"empty the built-in one": "*nat\n-F PREROUTING\nCOMMIT\n",
		"delete one jump":        "*nat\n-D OUTPUT -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\nCOMMIT\n",
		"delete a canary":        "*mangle\n-X KUBE-PROXY-CANARY\nCOMMIT\n",
		"empty the filter table": "*filter\n-F INPUT\n-F FORWARD\n-F OUTPUT\n-F KUBE-FORWARD\nCOMMIT\n",
		"empty both tables":      "*nat\n-F KUBE-SERVICES\n-F " + service + "\nCOMMIT\n*filter\n-F KUBE-FORWARD\n-F KUBE-SERVICES\n-A KUBE-SERVICES -j RETURN\nCOMMIT\n",
		"delete everything": "*filter\n-F INPUT\n-F FORWARD\n-F OUTPUT\n-F KUBE-FORWARD\n-X KUBE-FORWARD\n-X KUBE-SERVICES\n-X KUBE-EXTERNAL-SERVICES\nCOMMIT\n" +
			"*nat\n-F PREROUTING\n-F OUTPUT\n-F POSTROUTING\n-F KUBE-SERVICES\n-X KUBE-SERVICES\n-F " + service + "\n-X " + service + "\nCOMMIT\n",
	} {
		ways[name] = func(_ *testing.T, door *ipttest.Fake) error { return door.WriteExternally(input) }
	}
	variants(t, func(t *testing.T, variant ipt.Variant) {
		laws.FindsTampering(t, func() (*laws.Tables, *ipttest.Fake) { return lawAndFake(variant) }, false, ways)
	})
}

// TestRepairsAreChecked modifies a chain after another one was repaired.
func TestRepairsAreChecked(t *testing.T) {
	variants(t, func(t *testing.T, variant ipt.Variant) {
		b, door := oneFake(t, variant)
		p := clusters.NewSized(5, 3).Plan()
		sync(t, b, p)
		for range 2 {
			for _, flushed := range []string{"KUBE-SERVICES", "KUBE-MARK-MASQ"} {
				tamper(t, door, "*nat\n-F "+flushed+"\nCOMMIT\n")
				check(t, b, 1)
				sync(t, b, p)
			}
		}
		holds(t, b, p)
		check(t, b, 0)
	})
}

// TestFlushedTable flushes a table and deletes its chains: one repair writes everything.
func TestFlushedTable(t *testing.T) {
	b, door := oneFake(t, ipt.NFT)
	p := clusters.NewSized(5, 3).Plan()
	sync(t, b, p)
	check(t, b, 0)
	text, err := door.Save(t.Context(), tableNAT)
	if err != nil {
		t.Fatal(err)
	}
	var flush, remove strings.Builder
	for name := range parse(text) {
		fmt.Fprintf(&flush, "-F %s\n", name)
		if strings.HasPrefix(name, "KUBE-") {
			fmt.Fprintf(&remove, "-X %s\n", name)
		}
	}
	tamper(t, door, "*nat\n"+flush.String()+remove.String()+"COMMIT\n")
	repairs(t, b, p)
}

// TestLostNotifications checks that a change is found that the kernel did not report because there were too many.
func TestLostNotifications(t *testing.T) {
	b, door := oneFake(t, ipt.NFT)
	c := clusters.NewSized(5, 3)
	sync(t, b, c.Plan())
	name := portKey{"default/service-4", cluster.TCP}.chain(prefixCluster)
	tamper(t, door, "*nat\n-F "+name+"\nCOMMIT\n")
	door.LoseNotices()
	c.Set(3, -3)
	sync(t, b, c.Plan())
	repairs(t, b, c.Plan())
}

// TestJustWritten checks that external changes of chains just written are found, and that those of other chains are not
// mistaken for them.
func TestJustWritten(t *testing.T) {
	variants(t, func(t *testing.T, variant ipt.Variant) {
		b, door := oneFake(t, variant)
		c := clusters.NewSized(5, 3)
		sync(t, b, c.Plan())
		name := portKey{"default/service-4", cluster.TCP}.chain(prefixCluster)
		for step, external := range []struct {
			input string
			want  int
		}{
			{"*nat\n-F " + name + "\nCOMMIT\n", 1},
			{"*nat\n-A POSTROUTING -j ACCEPT\nCOMMIT\n", 0},
			{"*nat\n-A " + name + " -j RETURN\nCOMMIT\n", 1},
		} {
			c.Set(4, 3-6*(step%2))
			sync(t, b, c.Plan())
			tamper(t, door, external.input)
			check(t, b, external.want)
			sync(t, b, c.Plan())
			holds(t, b, c.Plan())
			check(t, b, 0)
		}
	})
}

// TestRulesOfOthers checks that changes of others' rules are not reported, and their rules are kept.
func TestRulesOfOthers(t *testing.T) {
	variants(t, func(t *testing.T, variant ipt.Variant) {
		b, door := oneFake(t, variant)
		sync(t, b, clusters.NewSized(5, 3).Plan())
		other := "*nat\n:CNI-HOSTPORT - [0:0]\n-A CNI-HOSTPORT -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.0.0.1:80\n-I PREROUTING -j CNI-HOSTPORT\nCOMMIT\n" +
			"*filter\n:KUBE-FIREWALL - [0:0]\n-I INPUT -j KUBE-FIREWALL\nCOMMIT\n*mangle\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n"
		tamper(t, door, other)
		check(t, b, 0)
		b = newBackend(t, settings(nil), door)
		sync(t, b, clusters.NewSized(3, 3).Plan())
		if err := b.Cleanup(context.Background()); err != nil {
			t.Fatal(err)
		}
		clean := ipttest.New(ipt.IPv4, variant)
		tamper(t, clean, other)
		if door.Dump() != clean.Dump() {
			t.Errorf("after Cleanup:\n%s\nwant\n%s", door.Dump(), clean.Dump())
		}
	})
}

// upstream is the ruleset of Kubernetes' kube-proxy: a chain for each endpoint, and one rule for each Service.
const upstream = `*filter
:KUBE-EXTERNAL-SERVICES - [0:0]
:KUBE-FORWARD - [0:0]
:KUBE-SERVICES - [0:0]
-I FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A KUBE-FORWARD -m comment --comment "kubernetes forwarding rules" -m mark --mark 0x4000/0x4000 -j ACCEPT
COMMIT
*nat
:KUBE-MARK-MASQ - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-%[1]s - [0:0]
:KUBE-SEP-AAAAAAAAAAAAAAAA - [0:0]
:KUBE-SVC-OLDOLDOLDOLDOLDO - [0:0]
:KUBE-SEP-BBBBBBBBBBBBBBBB - [0:0]
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-SERVICES -d 172.0.0.1/32 -p tcp -m comment --comment "default/service-1 cluster IP" -m tcp --dport 80 -j KUBE-SVC-%[1]s
-A KUBE-SERVICES -d 172.0.1.1/32 -p tcp -m comment --comment "default/gone cluster IP" -m tcp --dport 80 -j KUBE-SVC-OLDOLDOLDOLDOLDO
-A KUBE-SVC-%[1]s -m comment --comment "default/service-1 -> 10.0.1.0:8080" -j KUBE-SEP-AAAAAAAAAAAAAAAA
-A KUBE-SEP-AAAAAAAAAAAAAAAA -s 10.0.1.0/32 -m comment --comment default/service-1 -j KUBE-MARK-MASQ
-A KUBE-SEP-AAAAAAAAAAAAAAAA -p tcp -m comment --comment default/service-1 -m tcp -j DNAT --to-destination 10.0.1.0:8080
-A KUBE-SVC-OLDOLDOLDOLDOLDO -j KUBE-SEP-BBBBBBBBBBBBBBBB
-A KUBE-SEP-BBBBBBBBBBBBBBBB -p tcp -m tcp -j DNAT --to-destination 10.0.9.9:8080
-I PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
COMMIT
`

// TestTakeOver starts with another kube-proxy's rules: all are removed, and its jumps are not duplicated.
func TestTakeOver(t *testing.T) {
	variants(t, func(t *testing.T, variant ipt.Variant) {
		b, door := oneFake(t, variant)
		suffix := strings.TrimPrefix(portKey{"default/service-1", cluster.TCP}.chain(""), "")
		tamper(t, door, fmt.Sprintf(upstream, suffix))
		p := clusters.NewSized(5, 3).Plan()
		sync(t, b, p)
		holds(t, b, p)
		if text := door.Dump(); strings.Contains(text, "KUBE-SEP") || strings.Contains(text, "OLDOLD") || strings.Count(text, "-A PREROUTING") != 1 {
			t.Errorf("rules of the other program are left or duplicated:\n%s", text)
		}
	})
}

// TestExternalReference deletes a Service whose chain is used by another program's rule: the chain is left empty,
// everything else is written, and it is not an error and not retried.
func TestExternalReference(t *testing.T) {
	variants(t, func(t *testing.T, variant ipt.Variant) {
		b, door := oneFake(t, variant)
		c := clusters.NewSized(80, 3)
		sync(t, b, c.Plan())
		held := portKey{"default/service-1", cluster.TCP}.chain(prefixCluster)
		tamper(t, door, "*nat\n:SUBMARINER - [0:0]\n-A SUBMARINER -j "+held+"\nCOMMIT\n")
		for _, gone := range []int{1, 2, 3} {
			c.Services.Delete(clusters.NameAt(gone))
		}
		sync(t, b, c.Plan())
		want := c.Plan()
		rules, err := door.Rules(t.Context(), tableNAT, held)
		if err != nil || len(rules) > 0 {
			t.Errorf("the chain holds %v, %v; want nothing", rules, err)
		}
		if strings.Contains(door.Dump(), portKey{"default/service-2", cluster.TCP}.chain(prefixCluster)) {
			t.Error("the other chains are not deleted")
		}
		failed := door.Stats().Failed
		sync(t, b, want)
		if door.Stats().Failed != failed {
			t.Error("the deletion is retried with every sync")
		}
		if err := b.Cleanup(context.Background()); err == nil || !strings.Contains(err.Error(), held) {
			t.Errorf("Cleanup returned %v", err)
		}
		tamper(t, door, "*nat\n-F SUBMARINER\n-X SUBMARINER\nCOMMIT\n")
		if err := b.Cleanup(context.Background()); err != nil || door.Dump() != "" {
			t.Errorf("Cleanup returned %v and left\n%s", err, door.Dump())
		}
	})
}

// TestOtherErrors checks that errors that are not about rules are returned unchanged.
func TestOtherErrors(t *testing.T) {
	b, door := oneFake(t, ipt.Legacy)
	door.Refuse(func(string) error { return ipt.ErrLocked })
	results := b.Sync(context.Background(), clusters.NewSized(3, 1).Plan())
	err := laws.Err(results)
	if _, refused := errors.AsType[*backend.RefusedError](err); refused || !errors.Is(err, ipt.ErrLocked) {
		t.Errorf("got error %v", err)
	}
}

// TestLocalhostNodePorts checks that the rule that blocks neighbours is written before route_localnet is set, that
// Services are served even if it cannot be set, and that a chain of the kubelet is neither emptied nor deleted.
func TestLocalhostNodePorts(t *testing.T) {
	c := clusters.NewSized(1, 1)
	c.Options.NodePorts = plan.NodePortAddresses{Loopback: true}
	p := plan.Compute(&cluster.Snapshot{Services: c.Services.Map(), Node: &cluster.Node{Interfaces: addrs("10.0.0.9", "127.0.0.1")}}, c.Options, nil)
	door := ipttest.New(ipt.IPv4, ipt.NFT)
	tamper(t, door, "*filter\n:KUBE-FIREWALL - [0:0]\n-A KUBE-FIREWALL -m mark --mark 0x8000/0x8000 -j DROP\n-I INPUT -j KUBE-FIREWALL\nCOMMIT\n")
	kernel := settings{localnetRouted: "0", "refuse": "read-only"}
	b := newBackend(t, kernel, door)
	if err := laws.Err(b.Sync(context.Background(), p)); err == nil || !strings.Contains(err.Error(), "localhostNodePorts") {
		t.Errorf("the setting cannot be written, and got error %v", err)
	}
	const rule = `-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP`
	if text := door.Dump(); !strings.Contains(text, rule) || !strings.Contains(text, "-A PREROUTING -m comment") {
		t.Fatalf("the rule is missing, or Services are not served:\n%s", text)
	}
	delete(kernel, "refuse")
	sync(t, b, p)
	text := door.Dump()
	if kernel[localnetRouted] != "1" || strings.Count(text, rule) != 1 || strings.Count(text, "-A INPUT -j KUBE-FIREWALL") != 1 ||
		strings.Count(text, "-A OUTPUT -j KUBE-FIREWALL") != 1 || !strings.Contains(text, "0x8000/0x8000 -j DROP") ||
		!strings.Contains(text, `-A KUBE-SERVICES -m comment --comment "node ports" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS`) {
		t.Errorf("route_localnet is %s, rules:\n%s", kernel[localnetRouted], text)
	}
	check(t, b, 0)
	const forged = `-A KUBE-FIREWALL -s 127.0.0.0/8 -d 127.0.0.0/8 ! -i lo ! -o lo -m comment --comment "block forged localnet sources" -j DROP`
	for _, damage := range []string{"-F KUBE-FIREWALL", strings.Replace(rule, "-A", "-D", 1), strings.Replace(forged, "-A", "-D", 1)} {
		tamper(t, door, "*filter\n"+damage+"\nCOMMIT\n")
		check(t, b, 1)
		sync(t, b, p)
		if text := door.Dump(); !strings.Contains(text, rule) || !strings.Contains(text, forged) {
			t.Errorf("after %s a rule is not repaired:\n%s", damage, text)
		}
	}
}

// TestInvalidPackets checks that invalid packets are dropped unless conntrack is liberal about TCP.
func TestInvalidPackets(t *testing.T) {
	for value, want := range map[string]bool{"": true, "0": true, "1": false} {
		kernel := settings{}
		if value != "" {
			kernel[tcpBeLiberal] = value
		}
		door := ipttest.New(ipt.IPv6, ipt.Legacy)
		sync(t, newBackend(t, kernel, door), clusters.NewSized(1, 1).Plan())
		if got := strings.Contains(door.Dump(), "INVALID -j DROP"); got != want {
			t.Errorf("with %q: dropped %v, want %v", value, got, want)
		}
		options := testOptions
		options.Liberal = true // the setting follows when no other proxy serves the node
		door = ipttest.New(ipt.IPv6, ipt.Legacy)
		sync(t, New(options, kernel, noticesOf(t, door), door), clusters.NewSized(1, 1).Plan())
		if strings.Contains(door.Dump(), "INVALID -j DROP") {
			t.Errorf("with %q, and about to be set: dropped", value)
		}
	}
}
