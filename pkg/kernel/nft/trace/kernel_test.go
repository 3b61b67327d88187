//go:build linux

package trace

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
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
	if _, _, err := tracer.Next(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if after := run(t, "list", "tables"); after != before {
		t.Errorf("after Close there are tables:\n%s", after)
	}
	run(t, "add", "table", "ip", Table)
	if _, err := Open(t.Context(), filter); !errors.Is(err, ErrRunning) {
		t.Errorf("with a table of that name: %v", err)
	}
}

// TestKernelExplain checks what a refused table means.
func TestKernelExplain(t *testing.T) {
	netns.Enter(t, "nft")
	asked, err := netlink.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer asked.Close()
	tracer := &kernelTracer{asked: asked}
	refused := func(op string, errno unix.Errno) error {
		return tracer.explain(&nft.BatchError{Op: op, Errno: errno}, knftables.IPv4Family)
	}
	for _, errno := range []unix.Errno{unix.EINVAL, unix.EOPNOTSUPP} { // before Linux 5.12
		if err := refused("add table", errno); !errors.Is(err, ErrOldKernel) || !errors.Is(err, errno) {
			t.Errorf("%v: %v", errno, err)
		}
	}
	for _, err := range []error{refused("add table", unix.EPERM), refused("add chain", unix.EINVAL)} {
		if errors.Is(err, ErrOldKernel) || errors.Is(err, ErrRunning) {
			t.Error(err)
		}
	}
	run(t, "add", "table", "ip", Table)
	if err := refused("add table", unix.EPERM); !errors.Is(err, ErrRunning) {
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
