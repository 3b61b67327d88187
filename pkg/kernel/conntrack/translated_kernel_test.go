package conntrack_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/conntrack"
)

// TestKernelOpen checks that of all entries only those of open connections are visited whose destination is translated, in both
// families, all protocols and all zones.
func TestKernelOpen(t *testing.T) {
	k := openKernel(t)
	// translate adds an entry as a dnat rule does: it has IPS_DST_NAT, which an entry that is added with its two tuples has not.
	port := 2000
	translate := func(protocol, to, endpoint string, more ...string) {
		port++
		source := "10.0.0.1"
		if to[0] == 'f' {
			source = "fd00::1"
		}
		conntrackProgram(t, append([]string{"-I", "-p", protocol, "-t", "3600", "--src", source, "--sport", fmt.Sprint(port), "--dst", to, "--dport", "53",
			"--dst-nat", endpoint}, more...)...)
	}
	k.track(t, unix.IPPROTO_UDP, plain)
	k.track(t, unix.IPPROTO_TCP, plain)
	translate("udp", "10.96.0.10", "10.244.0.1:5353")
	translate("udp", "10.96.0.10", "10.244.0.1:5353", "--zone", "7")
	translate("udp", "fd00:96::10", "[fd00:244::1]:5353")
	translate("sctp", "10.96.0.10", "10.244.0.3", "--state", "ESTABLISHED", "--orig-vtag", "1", "--reply-vtag", "2")
	for _, state := range []string{"SYN_SENT", "ESTABLISHED", "FIN_WAIT", "CLOSE_WAIT", "LAST_ACK", "TIME_WAIT", "CLOSE"} {
		translate("tcp", "10.96.0.10", "10.244.0.2:5353", "--state", state)
	}
	var got []string
	visit := func(protocol uint8, f *conntrack.Flow) {
		got = append(got, fmt.Sprintf("%d %s %s %s", protocol, f.Source, f.Destination, f.ReplySource))
	}
	if err := conntrack.Translated(context.Background(), visit); err != nil {
		t.Fatal(err)
	}
	slices.Sort(got)
	want := []string{
		"132 10.0.0.1:2004 10.96.0.10:53 10.244.0.3:53",
		"17 10.0.0.1:2001 10.96.0.10:53 10.244.0.1:5353",
		"17 10.0.0.1:2002 10.96.0.10:53 10.244.0.1:5353",
		"17 [fd00::1]:2003 [fd00:96::10]:53 [fd00:244::1]:5353",
		"6 10.0.0.1:2005 10.96.0.10:53 10.244.0.2:5353",
		"6 10.0.0.1:2006 10.96.0.10:53 10.244.0.2:5353",
		"6 10.0.0.1:2007 10.96.0.10:53 10.244.0.2:5353",
		"6 10.0.0.1:2008 10.96.0.10:53 10.244.0.2:5353",
		"6 10.0.0.1:2009 10.96.0.10:53 10.244.0.2:5353",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("translated connections (-want +got):\n%s", diff)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := conntrack.Translated(ended, visit); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that ended: %v", err)
	}
}
