package nftables

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/test/clusters"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// TestKernelDamage has nft damage the table where elements and rules stay as they are, or where they cannot be written any more: it is
// repaired, by the second Sync at the latest. The next process repairs it, too.
func TestKernelDamage(t *testing.T) {
	p := clusters.NewSized(5, 3).Plan()
	for name, damage := range map[string]string{
		"the record becomes a base chain": "delete chain ip kube-proxy layout\nadd chain ip kube-proxy layout { type filter hook forward priority 0; policy drop; }",
		"goto becomes jump": "delete element ip kube-proxy services { 172.0.0.0 . tcp . 80 }\n" +
			"add element ip kube-proxy services { 172.0.0.0 . tcp . 80 comment \"default/service-0\" : jump internal-3 }",
		"another table with its name": "delete table ip kube-proxy\nadd table ip kube-proxy\nadd set ip kube-proxy services { type ipv4_addr; }\n" +
			"add map ip kube-proxy endpoints { type ipv4_addr : ipv4_addr; }",
	} {
		for _, restart := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				netns.Enter(t, "nft")
				run := func(args ...string) string {
					t.Helper()
					out, err := exec.Command("nft", args...).CombinedOutput()
					if err != nil {
						t.Fatalf("%v: %s", err, out)
					}
					return string(out)
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
				b := open()
				mustSync(t, b, p)
				run(damage)
				if restart {
					b = open()
				} else if details := found(t, b); len(details) == 0 {
					t.Error("nothing is found")
				}
				if err := b.Sync(t.Context(), p)[0].Err; err != nil {
					mustSync(t, b, p)
				}
				holds(t, b, p)
				if text := run("list", "table", "ip", TableName); strings.Contains(text, "policy drop") || strings.Contains(text, ": jump") {
					t.Error(text)
				}
			})
		}
	}
}

// TestKernelStrangeClient has nft send all clients of a port with session affinity to one endpoint, by an element that packets do not add.
// It goes at once.
func TestKernelStrangeClient(t *testing.T) {
	netns.Enter(t, "nft")
	kernel, err := nft.Open(nf.IPv4, TableName)
	if err != nil {
		t.Fatal(err)
	}
	b := newBackend(testOptions, kernel)
	defer b.Close()
	c := clusters.NewSized(1, 3)
	change := func(endpoints int) {
		t.Helper()
		c.Set(0, endpoints)
		service, _ := c.Services.Get(clusters.NameAt(0))
		service.Affinity = time.Hour
		mustSync(t, b, c.Plan())
	}
	change(3)
	for pool, members := range b.families[0].have.holds.pools.All() {
		if len(members.endpoints) == 0 { // its endpoints stay the same
			continue
		}
		if out, err := exec.Command("nft", "add", "element", "ip", TableName, pool.clients(), "{ * : 10.0.0.1 . 8080 }").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	found(t, b)
	forgetAll(t, b)
	holds(t, b, c.Plan()) // and so has no such client
}

// TestKernelLeftovers has nft add objects, which one Sync removes: it takes the table for its own, and so need not write the rules again.
func TestKernelLeftovers(t *testing.T) {
	netns.Enter(t, "nft")
	kernel, err := nft.Open(nf.IPv4, TableName)
	if err != nil {
		t.Fatal(err)
	}
	b, p := newBackend(testOptions, kernel), clusters.NewSized(5, 3).Plan()
	defer b.Close()
	mustSync(t, b, p)
	for _, object := range []string{"chain ip kube-proxy other", "set ip kube-proxy others { type ipv4_addr; }", "map ip kube-proxy others { type ipv4_addr : verdict; }"} {
		if out, err := exec.Command("nft", "add "+object).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		found(t, b)
		if result := b.Sync(t.Context(), p)[0]; result.Err != nil || result.Again != 0 || result.Rules == 0 {
			t.Errorf("%s: %+v", object, result)
		}
		holds(t, b, p)
	}
}
