package conntrack_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/conntrack"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

// States of TCP (linux/netfilter/nf_conntrack_tcp.h).
const (
	stateSynSent     = 1
	stateEstablished = 3
)

// space is a network namespace's table, with another way to write it.
type space struct {
	*conntrack.Kernel
	handle *netlink.Handle
}

// openKernel moves the test to a new network namespace and opens its table.
func openKernel(t *testing.T) *space {
	t.Helper()
	netns.Enter(t)
	k, err := conntrack.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	handle, err := netlink.NewHandle(unix.NETLINK_NETFILTER)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(handle.Close)
	return &space{k, handle}
}

// track adds an entry to the kernel's table; a TCP entry is established.
func (s *space) track(t *testing.T, protocol uint8, flow conntrack.Flow) {
	t.Helper()
	s.trackIn(t, protocol, stateEstablished, flow)
}

// trackIn adds an entry; state is that of TCP.
func (s *space) trackIn(t *testing.T, protocol, state uint8, flow conntrack.Flow) {
	t.Helper()
	family := netlink.InetFamily(unix.AF_INET6)
	if flow.Source.Addr().Is4() {
		family = unix.AF_INET
	}
	ip := func(a netip.AddrPort) net.IP { return a.Addr().AsSlice() }
	made := &netlink.ConntrackFlow{
		FamilyType: uint8(family), TimeOut: 3600,
		Forward: netlink.IPTuple{Protocol: protocol, SrcIP: ip(flow.Source), SrcPort: flow.Source.Port(), DstIP: ip(flow.Destination), DstPort: flow.Destination.Port()},
		Reverse: netlink.IPTuple{Protocol: protocol, SrcIP: ip(flow.ReplySource), SrcPort: flow.ReplySource.Port(), DstIP: ip(flow.Source), DstPort: flow.Source.Port()},
	}
	if protocol == unix.IPPROTO_TCP {
		made.ProtoInfo = &netlink.ProtoInfoTCP{State: state}
	}
	if err := s.handle.ConntrackCreate(netlink.ConntrackTable, family, made); err != nil {
		t.Fatalf("track %v: %v", flow, err)
	}
}

// insert adds an entry to toA with conntrack(8), which supports zones.
func insert(t *testing.T, more ...string) {
	t.Helper()
	conntrackProgram(t, append([]string{"-I", "-p", "udp", "-t", "3600", "--src", "10.0.0.1", "--sport", "1001", "--dst", "10.96.0.10", "--dport", "53",
		"--reply-src", "10.244.0.1", "--reply-port-src", "5353"}, more...)...)
}

// conntrackProgram runs conntrack(8).
func conntrackProgram(t *testing.T, args ...string) {
	t.Helper()
	if _, err := exec.LookPath("conntrack"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("the program conntrack is not in PATH: install it")
		}
		t.Skip("the program conntrack is not in PATH: install it")
	}
	if out, err := exec.Command("conntrack", args...).CombinedOutput(); err != nil {
		t.Fatalf("conntrack %q: %v\n%s", args, err, out)
	}
}

func flow(source, destination, replies string) conntrack.Flow {
	return conntrack.Flow{Source: netip.MustParseAddrPort(source), Destination: netip.MustParseAddrPort(destination), ReplySource: netip.MustParseAddrPort(replies)}
}

var (
	toA     = flow("10.0.0.1:1001", "10.96.0.10:53", "10.244.0.1:5353")
	toB     = flow("10.0.0.1:1002", "10.96.0.10:53", "10.244.0.2:5353")
	plain   = flow("10.0.0.1:1003", "192.0.2.1:53", "192.0.2.1:53")
	toA6    = flow("[fd00::1]:1001", "[fd00:96::10]:53", "[fd00:244::1]:5353")
	toB6    = flow("[fd00::1]:1002", "[fd00:96::10]:53", "[fd00:244::2]:5353")
	never   = func(*conntrack.Flow) bool { return false }
	all     = func(*conntrack.Flow) bool { return true }
	compare = func(a, b conntrack.Flow) int { return a.Source.Compare(b.Source) }
)

// list returns the flows of a family, sorted.
func list(t *testing.T, table conntrack.Table, family conntrack.Family) []conntrack.Flow {
	t.Helper()
	var flows []conntrack.Flow
	if _, err := table.Sweep(context.Background(), family, conntrack.UDP, func(f *conntrack.Flow) bool {
		flows = append(flows, *f)
		return false
	}); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(flows, compare)
	return flows
}

// addresses lets cmp compare addresses.
var addresses = cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })

func wantFlows(t *testing.T, table conntrack.Table, family conntrack.Family, want ...conntrack.Flow) {
	t.Helper()
	if diff := cmp.Diff(want, list(t, table, family), addresses); diff != "" {
		t.Errorf("%s entries (-want +got):\n%s", family, diff)
	}
}

// sweepAlike checks what the kernel and the fake have in common.
func sweepAlike(t *testing.T, table conntrack.Table, add func(conntrack.Flow)) {
	t.Helper()
	for _, f := range []conntrack.Flow{toA, toB, plain, toA6, toB6} {
		add(f)
	}
	wantFlows(t, table, conntrack.IPv4, toA, toB, plain)
	wantFlows(t, table, conntrack.IPv6, toA6, toB6)
	if a, p := toA, plain; !a.Translated() || p.Translated() {
		t.Error("Translated is wrong")
	}
	ctx := context.Background()
	got, err := table.Sweep(ctx, conntrack.IPv4, conntrack.UDP, func(f *conntrack.Flow) bool { return f.ReplySource == toA.ReplySource })
	if want := (conntrack.Swept{Seen: 3, Deleted: 1}); got != want || err != nil {
		t.Errorf("one stale: got %+v, %v, want %+v", got, err, want)
	}
	wantFlows(t, table, conntrack.IPv4, toB, plain)
	wantFlows(t, table, conntrack.IPv6, toA6, toB6)
	if got, err := table.Sweep(ctx, conntrack.IPv6, conntrack.UDP, all); got != (conntrack.Swept{Seen: 2, Deleted: 2}) || err != nil {
		t.Errorf("all stale: %+v, %v", got, err)
	}
	wantFlows(t, table, conntrack.IPv6)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if got, err := table.Sweep(ended, conntrack.IPv4, conntrack.UDP, all); got.Deleted != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that ended: %+v, %v", got, err)
	}
	wantFlows(t, table, conntrack.IPv4, toB, plain)
}

func TestKernelSweep(t *testing.T) {
	k := openKernel(t)
	sweepAlike(t, k, func(f conntrack.Flow) { k.track(t, unix.IPPROTO_UDP, f) })
}

// TestKernelOtherEntries has entries with the same ends in TCP, which is not visited, and in another zone, which is.
func TestKernelOtherEntries(t *testing.T) {
	k := openKernel(t)
	k.track(t, unix.IPPROTO_TCP, toA)
	for _, zone := range []string{"7", "8"} {
		insert(t, "--zone", zone)
	}
	visited := 0
	got, err := k.Sweep(context.Background(), conntrack.IPv4, conntrack.UDP, func(*conntrack.Flow) bool { visited++; return visited == 1 })
	if want := (conntrack.Swept{Seen: 2, Deleted: 1}); got != want || err != nil {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	wantFlows(t, k, conntrack.IPv4, toA)
	left, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
	if err != nil || len(left) != 2 {
		t.Errorf("%d entries left (%v), want that of TCP and that of one zone", len(left), err)
	}
}

// TestKernelReusedEntry deletes an entry whose memory has been reused for another one: that one stays.
func TestKernelReusedEntry(t *testing.T) {
	k := openKernel(t)
	k.track(t, unix.IPPROTO_UDP, toA)
	anew := conntrack.Flow{Source: toA.Source, Destination: toA.Destination, ReplySource: toB.ReplySource}
	got, err := k.Sweep(context.Background(), conntrack.IPv4, conntrack.UDP, func(*conntrack.Flow) bool {
		if err := netlink.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
			t.Error(err)
		}
		k.track(t, unix.IPPROTO_UDP, anew)
		return true
	})
	if got.Deleted != 0 || err != nil {
		t.Errorf("got %+v, %v", got, err)
	}
	wantFlows(t, k, conntrack.IPv4, anew)
}

// TestKernelLargeTable sweeps 200,000 entries (10,000 with -short), half of them stale, and checks the use of memory.
func TestKernelLargeTable(t *testing.T) {
	k := openKernel(t)
	count := 200_000
	if testing.Short() {
		count = 10_000
	}
	load := func(n int) {
		f := conntrack.Flow{ReplySource: toA.ReplySource, Destination: toA.Destination}
		if n%2 == 0 {
			f.ReplySource = toB.ReplySource
		}
		f.Source = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(n >> 15), 1}), uint16(n&0x7fff)|0x8000)
		k.track(t, unix.IPPROTO_UDP, f)
	}
	for n := range count {
		load(n)
	}
	runtime.GC()
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	seen, peak, began := 0, uint64(0), time.Now()
	got, err := k.Sweep(context.Background(), conntrack.IPv4, conntrack.UDP, func(f *conntrack.Flow) bool {
		if seen++; seen%10_000 == 0 {
			runtime.ReadMemStats(&now)
			peak = max(peak, now.HeapInuse)
		}
		return f.ReplySource == toA.ReplySource
	})
	took := time.Since(began)
	if want := (conntrack.Swept{Seen: count, Deleted: count / 2}); got != want || err != nil {
		t.Fatalf("got %+v, %v, want %+v", got, err, want)
	}
	grown := int64(peak) - int64(before.HeapInuse)
	t.Logf("%d entries in %s: the heap grew by %d KiB at most", count, took.Round(time.Millisecond), grown>>10)
	if grown > 16<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
	if left := list(t, k, conntrack.IPv4); len(left) != count/2 {
		t.Errorf("%d entries left, want %d", len(left), count/2)
	}
}

// early is a TCP connection that was started before there was a rule for it.
var early = conntrack.Flow{Kind: conntrack.UnansweredTCP, Source: plain.Source, Destination: toA.Destination, ReplySource: toA.Destination}

// TestKernelUnanswered checks that of all TCP entries only those are visited that have no reply and no translated
// destination, whether or not their source is translated.
func TestKernelUnanswered(t *testing.T) {
	k := openKernel(t)
	early6 := flow("[fd00::1]:1003", "[fd00:96::10]:53", "[fd00:96::10]:53")
	early6.Kind = conntrack.UnansweredTCP
	k.trackIn(t, unix.IPPROTO_TCP, stateSynSent, early)
	k.trackIn(t, unix.IPPROTO_TCP, stateSynSent, early6)
	k.trackIn(t, unix.IPPROTO_UDP, 0, flow("10.0.0.1:1004", "10.96.0.10:53", "10.96.0.10:53"))
	k.trackIn(t, unix.IPPROTO_TCP, stateSynSent, toA) // translated
	k.track(t, unix.IPPROTO_TCP, flow("10.0.0.1:1005", "10.96.0.10:53", "10.96.0.10:53"))
	masqueraded := flow("10.0.0.1:1006", "10.96.0.10:53", "10.96.0.10:53")
	masqueraded.Kind = conntrack.UnansweredTCP
	conntrackProgram(t, "-I", "-p", "tcp", "--state", "SYN_SENT", "-t", "120", "--src", "10.0.0.1", "--sport", "1006", "--dst", "10.96.0.10", "--dport", "53",
		"--reply-src", "10.96.0.10", "--reply-port-src", "53", "--reply-dst", "192.0.2.9", "--reply-port-dst", "1006")
	conntrackProgram(t, "-I", "-p", "tcp", "--state", "SYN_SENT", "-u", "SEEN_REPLY", "-t", "120", "--src", "10.0.0.1", "--sport", "1007", "--dst", "10.96.0.10", "--dport", "53")
	want := func(family conntrack.Family, want ...conntrack.Flow) {
		t.Helper()
		var got []conntrack.Flow
		if _, err := k.Sweep(context.Background(), family, conntrack.UnansweredTCP, func(f *conntrack.Flow) bool {
			got = append(got, *f)
			return false
		}); err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(got, compare)
		if diff := cmp.Diff(want, got, addresses); diff != "" {
			t.Errorf("unanswered %s connections (-want +got):\n%s", family, diff)
		}
	}
	want(conntrack.IPv4, early, masqueraded)
	want(conntrack.IPv6, early6)
	got, err := k.Sweep(context.Background(), conntrack.IPv4, conntrack.UnansweredTCP, func(f *conntrack.Flow) bool { return *f == early })
	if want := (conntrack.Swept{Seen: 2, Deleted: 1}); got != want || err != nil {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	want(conntrack.IPv4, masqueraded)
	want(conntrack.IPv6, early6)
}

// TestKernelAnsweredMeanwhile checks that a connection is kept that is answered after the kernel put it into the dump.
func TestKernelAnsweredMeanwhile(t *testing.T) {
	k := openKernel(t)
	k.trackIn(t, unix.IPPROTO_TCP, stateSynSent, early)
	got, err := k.Sweep(context.Background(), conntrack.IPv4, conntrack.UnansweredTCP, func(*conntrack.Flow) bool {
		conntrackProgram(t, "-U", "-p", "tcp", "--state", "ESTABLISHED", "-u", "SEEN_REPLY,ASSURED", "--src", "10.0.0.1", "--sport", "1003",
			"--dst", "10.96.0.10", "--dport", "53")
		return true
	})
	if want := (conntrack.Swept{Seen: 1}); got != want || err != nil {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	left, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
	if err != nil || len(left) != 1 {
		t.Errorf("%d entries left (%v), want 1", len(left), err)
	}
}

// TestKernelTranslated checks that of all TCP and SCTP entries those are visited whose destination is translated, except of connections
// that both ends have closed.
func TestKernelTranslated(t *testing.T) {
	k := openKernel(t)
	add := func(source string, more ...string) {
		t.Helper()
		from := netip.MustParseAddrPort(source)
		to, nat := "10.96.0.10", "10.244.0.1"
		if from.Addr().Is6() {
			to, nat = "fd00:96::10", "fd00:244::1"
		}
		conntrackProgram(t, slices.Concat([]string{"-I"}, more, []string{"-t", "120", "--src", from.Addr().String(),
			"--sport", strconv.Itoa(int(from.Port())), "--dst", to, "--dport", "53", "--dst-nat", nat})...)
	}
	tcp := func(state string) []string { return []string{"-p", "tcp", "--state", state} }
	sctp := []string{"-p", "sctp", "--state", "ESTABLISHED", "--orig-vtag", "1", "--reply-vtag", "2"}
	add("10.0.0.1:1001", tcp("ESTABLISHED")...)
	add("10.0.0.1:1002", tcp("SYN_SENT")...)
	add("10.0.0.1:1003", tcp("TIME_WAIT")...)
	add("10.0.0.1:1004", tcp("CLOSE")...)
	add("[fd00::1]:1001", tcp("ESTABLISHED")...)
	add("10.0.0.1:1005", sctp...)
	add("[fd00::1]:1005", sctp...)
	k.track(t, unix.IPPROTO_TCP, plain)
	k.track(t, unix.IPPROTO_UDP, toA)
	of := func(kind conntrack.Kind, source, to, nat string) conntrack.Flow {
		f := flow(source, to, nat)
		f.Kind = kind
		return f
	}
	to, nat, to6, nat6 := "10.96.0.10:53", "10.244.0.1:53", "[fd00:96::10]:53", "[fd00:244::1]:53"
	for _, test := range []struct {
		family conntrack.Family
		kind   conntrack.Kind
		want   []conntrack.Flow
	}{
		{conntrack.IPv4, conntrack.TranslatedTCP, []conntrack.Flow{
			of(conntrack.TranslatedTCP, "10.0.0.1:1001", to, nat), of(conntrack.TranslatedTCP, "10.0.0.1:1002", to, nat)}},
		{conntrack.IPv6, conntrack.TranslatedTCP, []conntrack.Flow{of(conntrack.TranslatedTCP, "[fd00::1]:1001", to6, nat6)}},
		{conntrack.IPv4, conntrack.TranslatedSCTP, []conntrack.Flow{of(conntrack.TranslatedSCTP, "10.0.0.1:1005", to, nat)}},
		{conntrack.IPv6, conntrack.TranslatedSCTP, []conntrack.Flow{of(conntrack.TranslatedSCTP, "[fd00::1]:1005", to6, nat6)}},
	} {
		var seen []conntrack.Flow
		got, err := k.Sweep(context.Background(), test.family, test.kind, func(f *conntrack.Flow) bool { seen = append(seen, *f); return true })
		slices.SortFunc(seen, compare)
		if diff := cmp.Diff(test.want, seen, addresses); diff != "" || err != nil || got.Deleted != len(test.want) {
			t.Errorf("%s %s: %+v, %v (-want +got):\n%s", test.family, test.kind, got, err, diff)
		}
	}
}
