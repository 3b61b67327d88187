//go:build linux

package trace

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

// run runs nft(8).
func run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("nft", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("nft %q: %v: %s", args, err, out)
	}
	return string(out)
}

// TestKernelTracer traces a datagram of this machine to itself that a rule rejects.
func TestKernelTracer(t *testing.T) {
	netns.Enter(t, "nft", "ip")
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	run(t, `add table inet fw; add chain inet fw in { type filter hook input priority 5; }; add rule inet fw in udp dport 53 reject comment "no DNS"`)
	before := run(t, "list", "tables")
	filter := Filter{To: []Destination{to("127.0.0.1", unix.IPPROTO_UDP, 53), to("::", unix.IPPROTO_UDP, 53)}, PerSecond: 10}
	tracer, err := Open(t.Context(), filter)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), filter); !errors.Is(err, ErrRunning) {
		t.Errorf("a second trace: %v", err)
	}
	for _, to := range []string{"127.0.0.1:53", "[::1]:53", "127.0.0.1:54"} {
		conn, err := net.Dial("udp", to)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if _, err := conn.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	dropped(t, tracer, "127.0.0.1:53", "[::1]:53")
	if err := tracer.Close(); err != nil {
		t.Error(err)
	}
	if _, _, err := tracer.Next(t.Context()); err == nil {
		t.Error("no error after Close")
	}
	if after := run(t, "list", "tables"); after != before {
		t.Errorf("after Close there are tables:\n%s", after)
	}
	run(t, "add", "table", "ip", Table)
	if _, err := Open(t.Context(), filter); !errors.Is(err, ErrRunning) {
		t.Errorf("with a table of that name: %v", err)
	}
}

// newFlags rewrites how nft 1.0.6 lists a mask of TCP flags to how 1.1.3 lists it.
var newFlags = strings.NewReplacer("tcp flags syn / syn,ack", "tcp flags & (syn | ack) == syn")

// TestKernelSelection checks which packets the tables select, as nft lists it.
func TestKernelSelection(t *testing.T) {
	netns.Enter(t, "nft")
	for _, test := range []struct {
		family nf.Family
		filter Filter
		want   string
	}{
		{nf.IPv4, Filter{From: netip.MustParsePrefix("10.0.0.0/9"), Opening: true}, `
ip saddr 10.0.0.0/9 tcp flags & (syn | ack) == syn goto selected
ip saddr 10.0.0.0/9 meta l4proto != tcp goto selected`},
		{nf.IPv4, Filter{To: []Destination{to("10.96.0.1", unix.IPPROTO_TCP, 80), to("0.0.0.0", unix.IPPROTO_UDP, 53), to("::1", 0, 0)}}, `
ip daddr 10.96.0.1 tcp dport 80 goto selected
fib daddr type local udp dport 53 goto selected`},
		{nf.IPv6, Filter{From: netip.MustParsePrefix("fd00::/64"), To: []Destination{to("fd00::1", unix.IPPROTO_TCP, 80), to("fd00::2", 0, 0)}, Opening: true}, `
ip6 saddr fd00::/64 ip6 daddr fd00::1 tcp dport 80 tcp flags & (syn | ack) == syn goto selected
ip6 saddr fd00::/64 ip6 daddr fd00::2 tcp flags & (syn | ack) == syn goto selected
ip6 saddr fd00::/64 ip6 daddr fd00::2 meta l4proto != tcp goto selected`},
		{nf.IPv6, Filter{To: []Destination{to("::", unix.IPPROTO_SCTP, 7)}}, `
fib daddr type local sctp dport 7 goto selected`},
	} {
		conn, err := nf.Open()
		if err != nil {
			t.Fatal(err)
		}
		test.filter.PerSecond = 20
		b := nf.NewBatch(test.family, Table, conn.Limit())
		test.filter.write(b, test.family)
		if err := conn.Commit(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		want := "chain select-output {\ntype filter hook output priority -350; policy accept;" + test.want + "\n}"
		limited := "chain selected {\ncomment \"begins the trace of a packet\"\nlimit rate 20/second burst 20 packets meta nftrace set 1\n}"
		listing := strings.ReplaceAll(newFlags.Replace(run(t, "list", "table", test.family.String(), Table)), "\t", "")
		if !strings.Contains(listing, want) || !strings.Contains(listing, limited) {
			t.Errorf("%+v: want\n%s\n%s\nin\n%s", test.filter, want, limited, listing)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestKernelExplain checks what a refused table means.
func TestKernelExplain(t *testing.T) {
	netns.Enter(t, "nft")
	conn, err := nf.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	tracer := &kernelTracer{conn: conn}
	refused := func(op string, errno unix.Errno) error {
		return tracer.explain(&nf.Refusal{Op: op, Errno: errno}, nf.IPv4)
	}
	for _, errno := range []unix.Errno{unix.EINVAL, unix.EOPNOTSUPP} { // before Linux 5.12
		if err := refused(nf.AddTable, errno); !errors.Is(err, ErrOldKernel) || !errors.Is(err, errno) {
			t.Errorf("%v: %v", errno, err)
		}
	}
	for _, err := range []error{refused(nf.AddTable, unix.EPERM), refused("add chain selected", unix.EINVAL)} {
		if errors.Is(err, ErrOldKernel) || errors.Is(err, ErrRunning) {
			t.Error(err)
		}
	}
	run(t, "add", "table", "ip", Table)
	if err := refused(nf.AddTable, unix.EPERM); !errors.Is(err, ErrRunning) {
		t.Errorf("beside another trace: %v", err)
	}
}

// dropped reads events until a rule has dropped the datagrams to some destinations, and checks them.
func dropped(t *testing.T, tracer Tracer, destinations ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var selected []string
	for drops := 0; drops < len(destinations); {
		events, lost, err := tracer.Next(ctx)
		if err != nil || lost || ctx.Err() != nil {
			t.Fatalf("%v, lost %v; %v, selected %v", err, lost, ctx.Err(), selected)
		}
		for _, e := range events {
			if e.Chain == Selected && e.Headers != nil && e.Headers.Protocol == unix.IPPROTO_UDP && e.Headers.In == "" {
				selected = append(selected, e.Headers.Destination.String())
			}
			if e.Verdict != "drop" {
				continue
			}
			drops++
			d, err := tracer.Describe(e)
			if want := (Description{Hook: "input", Priority: 5, Type: "filter", Rejects: true, Comment: "no DNS"}); err != nil || d != want || e.Table != "fw" {
				t.Errorf("%+v is %+v, %v, want %+v", e, d, err, want)
			}
		}
	}
	if !slices.Equal(selected, destinations) {
		t.Errorf("selected %v, want %v", selected, destinations)
	}
}
