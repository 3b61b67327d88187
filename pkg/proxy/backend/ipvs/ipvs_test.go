package ipvs

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipvs"
)

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

func server(protocol uint8, addr string) ipvs.Server {
	return ipvs.Server{Protocol: protocol, Addr: netip.MustParseAddrPort(addr)}
}

// nodeWith returns a node after ipvs mode, with the virtual servers of another load balancer.
func nodeWith() *fake {
	return &fake{
		Virtual: []ipvs.Server{
			server(tcp, "10.96.0.10:80"), server(udp, "10.96.0.10:53"), server(tcp, "[fd00::10]:80"), // cluster IPs
			server(tcp, "192.0.2.1:30080"), server(udp, "192.0.2.1:30053"), server(sctp, "192.0.2.1:30132"), server(tcp, "[2001:db8::1]:30080"), // node ports
			server(tcp, "192.0.2.1:443"), server(udp, "192.0.2.1:30080"), server(tcp, "198.51.100.1:30080"), // another program's
		},
		Named: map[string][]uint16{
			"KUBE-CLUSTER-IP":                 {80},
			"KUBE-6-CLUSTER-IP":               nil,
			"KUBE-NODE-PORT-TCP":              {30080},
			"KUBE-6-NODE-PORT-UDP":            {30053},
			"KUBE-NODE-PORT-SCTP-HASH":        {30132},
			"KUBE-6-LOAD-BALANCER-SOURCE-CID": nil, // cut
			"KUBE-ROUTER-NODES":               nil,
			"KUBE-NODE-PORT-LOCAL-OTHER":      nil,
			"CLUSTER-IP":                      nil,
		},
		Used:    map[string]bool{},
		Dummies: map[string][]netip.Addr{device: {addr("10.96.0.10"), addr("fd00::10")}, "nodelocaldns": {addr("169.254.20.10")}},
		Others:  []netip.Addr{addr("192.0.2.1"), addr("2001:db8::1"), addr("127.0.0.1")},
	}
}

func TestRemove(t *testing.T) {
	objects := nodeWith()
	want := nodeWith()
	want.Virtual = want.Virtual[7:]
	want.Named = map[string][]uint16{"KUBE-ROUTER-NODES": nil, "KUBE-NODE-PORT-LOCAL-OTHER": nil, "CLUSTER-IP": nil}
	delete(want.Dummies, device)
	for range 2 { // the second run finds nothing
		if err := (Mode{Objects: objects}).Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, objects, cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	}
}

// TestRemoveKeepsExcluded checks that virtual servers in excluded ranges are kept.
func TestRemoveKeepsExcluded(t *testing.T) {
	objects := nodeWith()
	if err := (Mode{Objects: objects, ExcludeCIDRs: []string{"192.0.2.0/24"}}).Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := slices.Delete(nodeWith().Virtual, 0, 3) // the cluster IPs
	want = slices.Delete(want, 3, 4)                // the IPv6 node port
	if diff := cmp.Diff(want, objects.Virtual, cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})); diff != "" {
		t.Errorf("virtual servers (-want +got):\n%s", diff)
	}
}

// TestRemoveWithBadRanges checks that ranges of a configuration for another mode, which nobody has validated, matter only if there is
// something to remove.
func TestRemoveWithBadRanges(t *testing.T) {
	bad := []string{"x"}
	if err := (Mode{Objects: &fake{}, ExcludeCIDRs: bad}).Remove(t.Context()); err != nil {
		t.Error(err)
	}
	objects := nodeWith()
	before := len(objects.Virtual)
	if err := (Mode{Objects: objects, ExcludeCIDRs: bad}).Remove(t.Context()); err == nil || len(objects.Virtual) != before {
		t.Errorf("%v, %d virtual servers are left of %d", err, len(objects.Virtual), before)
	}
}

// TestRemoveFails checks that a set or virtual server that cannot be removed is reported, and that everything needed
// for another attempt is kept.
func TestRemoveFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // skips the pauses between attempts
		objects := nodeWith()
		objects.Used["KUBE-CLUSTER-IP"] = true
		began := time.Now()
		if err := (Mode{Objects: objects}).Remove(t.Context()); !errors.Is(err, ipvs.ErrBusy) {
			t.Errorf("got %v, want ErrBusy", err)
		}
		if tried := time.Since(began); tried != busyPatience {
			t.Errorf("gave up after %s, want %s", tried, busyPatience)
		}
		if _, ok := objects.Named["KUBE-CLUSTER-IP"]; !ok || len(objects.Named) != 4 || len(objects.Virtual) != 3 || len(objects.Dummies) != 1 {
			t.Errorf("left are %+v; want the set in use and everything of other programs", objects)
		}
	})
	objects := nodeWith()
	objects.Refuse = errors.New("no")
	if err := (Mode{Objects: objects}).Remove(t.Context()); !errors.Is(err, objects.Refuse) {
		t.Errorf("got %v, want the refusal", err)
	}
	if before := nodeWith(); len(objects.Named) != len(before.Named) || len(objects.Dummies) != len(before.Dummies) {
		t.Errorf("left are %+v; want the sets and the device, which identify the virtual servers", objects)
	}
	objects.Refuse = nil
	if err := (Mode{Objects: objects}).Remove(t.Context()); err != nil || len(objects.Virtual) != 3 || len(objects.Named) != 3 || len(objects.Dummies) != 1 {
		t.Errorf("second attempt: %v; left are %+v", err, objects)
	}
}
