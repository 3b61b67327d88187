//go:build linux

package backendtest

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
	"github.com/seed-11a05479/kube-proxy/test/cases"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// earlyLimit is the time limit of a connection that begins before the rules: of its second retransmission, on a slow machine.
const earlyLimit = 2 * time.Minute

// EarlyClient opens a connection to a Service of the case cluster-ip before there are rules, and programs the case before the
// client sends its SYN again. No rule translates that SYN, because conntrack has already seen the first one. It must
// not be refused: once the entry is deleted, which is the conntrack reconciler's work, the next one must be answered.
func EarlyClient(t *testing.T, dir string, open Open) {
	for _, c := range cases.Named(t, dir, "cluster-ip") {
		t.Run(c.Name, func(t *testing.T) {
			at := slices.IndexFunc(c.Packets, func(p cases.Packet) bool {
				return p.From == "pod1a" && p.Protocol.String() == string(netns.TCP) && p.Verdict == plan.Balance
			})
			if at < 0 {
				t.Fatal("the case sends nothing from pod1a")
			}
			NewBench(t, open).early(t, c, c.Packets[at])
		})
	}
}

func (b *Bench) early(t *testing.T, c *cases.Case, packet cases.Packet) {
	t.Helper()
	// conntrack begins with the first rule that needs it.
	const other = "table inet other { chain c { type filter hook forward priority 0; ct state new accept; }; }"
	if out, err := b.Lab.Node1.Command("nft", other).CombinedOutput(); err != nil {
		t.Fatalf("nft: %v\n%s", err, out)
	}
	from, err := b.Lab.Host(packet.From)
	if err != nil {
		t.Fatal(err)
	}
	probe := netns.Probe{From: from, To: packet.To, Protocol: netns.TCP, Timeout: earlyLimit}
	answer := make(chan netns.Answer, 1)
	go func() { answer <- probe.Send() }()
	await(t, "the first SYN", func() bool { sent, _ := opening(t, from); return sent })
	b.Sync(t, c.Plan())
	_, before := opening(t, from)
	await(t, "a retransmission", func() bool { sent, again := opening(t, from); return !sent || again > before })
	if out, err := b.Lab.Node1.Command("conntrack", "-F").CombinedOutput(); err != nil {
		t.Fatalf("conntrack -F: %v\n%s", err, out)
	}
	if got := <-answer; got.Verdict != netns.Answered || !slices.Contains(packet.Endpoints, got.Endpoint) {
		t.Errorf("%s: %s, want an answer of %v", probe, got, packet.Endpoints)
	}
}

// await waits until a condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(earlyLimit); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s for %s", earlyLimit, what)
		}
	}
}

// opening reports whether a host has a TCP socket that waits for the answer to its SYN, and how often that was sent again. It
// reads proc_net_tcp (the kernel's Documentation/networking/proc_net_tcp.rst).
func opening(t *testing.T, host *netns.Host) (sent bool, again int64) {
	t.Helper()
	out, err := host.Command("cat", "/proc/net/tcp", "/proc/net/tcp6").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		const state, synSent, retransmissions = 3, "02", 6
		if fields := strings.Fields(line); len(fields) > retransmissions && fields[state] == synSent {
			again, err := strconv.ParseInt(fields[retransmissions], 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			return true, again
		}
	}
	return false, 0
}
