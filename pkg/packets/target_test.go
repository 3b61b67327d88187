package packets

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft/trace"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/status"
)

// The protocols of packets.
const (
	protoTCP  = byte(cluster.TCP)
	protoUDP  = byte(cluster.UDP)
	protoSCTP = byte(cluster.SCTP)
)

func TestParseTarget(t *testing.T) {
	web := netip.MustParseAddrPort("10.96.0.10:80")
	for _, test := range []struct {
		to, from string
		want     Target
		err      string
	}{
		{to: "default/web", want: Target{Destination: status.Destination{Service: cluster.ServiceName{Namespace: "default", Name: "web"}}}},
		{to: "default/web:http", want: Target{Destination: status.Destination{Service: cluster.ServiceName{Namespace: "default", Name: "web"}, Port: "http"}}},
		{to: "default/web:53/udp", want: Target{Destination: status.Destination{Service: cluster.ServiceName{Namespace: "default", Name: "web"}, Port: "53", Protocol: cluster.UDP}}},
		{to: "10.96.0.10", want: Target{Destination: status.Destination{To: netip.AddrPortFrom(web.Addr(), 0)}}},
		{to: "10.96.0.10:80", want: Target{Destination: status.Destination{To: web, Protocol: cluster.TCP}}},
		{to: "10.96.0.10:80/sctp", want: Target{Destination: status.Destination{To: web, Protocol: cluster.SCTP}}},
		{to: "[fd00::1]:http", want: Target{Destination: status.Destination{To: netip.MustParseAddrPort("[fd00::1]:0"), Port: "http"}}},
		{to: "fd00::1", want: Target{Destination: status.Destination{To: netip.MustParseAddrPort("[fd00::1]:0")}}},
		{to: "[fd00::1]", want: Target{Destination: status.Destination{To: netip.MustParseAddrPort("[fd00::1]:0")}}},
		{to: "[fd00::1]:53/UDP", want: Target{Destination: status.Destination{To: netip.MustParseAddrPort("[fd00::1]:53"), Protocol: cluster.UDP}}},
		{to: "http://web.default.svc.cluster.local", want: Target{Destination: status.Destination{Service: cluster.ServiceName{Namespace: "default", Name: "web"}, Port: "80"}}},
		{from: "10.244.1.7/24", want: Target{From: netip.MustParsePrefix("10.244.1.0/24")}},
		{to: "10.96.0.10", from: "10.244.1.7", want: Target{Destination: status.Destination{To: netip.AddrPortFrom(web.Addr(), 0)}, From: netip.MustParsePrefix("10.244.1.7/32")}},
		{err: "nothing to trace"},
		{to: "web", err: `"web" is not a destination`},
		{to: "default/", err: "is not a destination"},
		{to: "default/web:", err: "is not a destination"},
		{to: "default/web/udp", err: "is not a destination"},
		{to: "default/web:53/icmp", err: `"icmp" is not a protocol`},
		{to: "10.96.0.10/udp", err: "a protocol but no port: write 10.96.0.10, or 10.96.0.10:80/udp"},
		{to: "10.96.0.10:0", err: "must not be 0"},
		{to: "10.96.0.10:80/tls", err: `"tls" is not a protocol`},
		{to: "10.96.0.300:80", err: "is not a destination"},
		{to: "[::ffff:10.96.0.10]:80", err: "packets to it are IPv4 packets: ask for 10.96.0.10"},
		{to: "0.0.0.0", err: "no packet is sent to 0.0.0.0"},
		{to: "[fe80::1%eth0]:80", err: "fe80::1%eth0 has a zone"},
		{to: "fe80::1%eth0", err: "has a zone"},
		{to: "10.96.0.10", from: "fd00::/8", err: "different IP families"},
		{to: "default/web", from: "10.0.0.0/40", err: "neither a CIDR nor an address"},
		{from: "::ffff:10.0.0.1", err: "neither a CIDR nor an address"},
	} {
		got, err := ParseTarget(test.to, test.from)
		switch {
		case test.err != "":
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%q from %q: %v, want %q", test.to, test.from, err, test.err)
			}
		case err != nil || got != test.want:
			t.Errorf("%q from %q: %+v, %v, want %+v", test.to, test.from, got, err, test.want)
		}
	}
}

// reader has the Services of a test.
type reader struct {
	asked []status.Filter
}

func (r *reader) Services(_ context.Context, f status.Filter, _ bool) (*v1alpha1.ServiceList, error) {
	r.asked = append(r.asked, f)
	return &v1alpha1.ServiceList{Items: services()}, nil
}

func (*reader) Service(_ context.Context, name cluster.ServiceName) (*v1alpha1.Service, error) {
	for _, s := range services() {
		if s.Namespace == name.Namespace && s.Name == name.Name {
			return &s, nil
		}
	}
	return nil, errors.New("no such Service")
}

// TestResolve checks what the kernel is asked to trace.
func TestResolve(t *testing.T) {
	cluster, node := netip.MustParseAddr("10.96.0.10"), netip.IPv4Unspecified()
	for _, test := range []struct {
		to, from string
		want     []trace.Destination
		asked    []status.Filter
		err      string
	}{
		{to: "default/web", want: []trace.Destination{{Addr: cluster, Protocol: protoTCP, Port: 80}, {Addr: node, Protocol: protoTCP, Port: 30080}}},
		{to: "default/web:80", want: []trace.Destination{{Addr: cluster, Protocol: protoTCP, Port: 80}, {Addr: node, Protocol: protoTCP, Port: 30080}}},
		{to: "default/web:https", err: `Service default/web has no port https; "kube-proxy service describe default/web" lists its ports`},
		{to: "default/web:http/udp", err: "has no port http/udp"},
		{to: "default/web", from: "fd00::/8", err: "has no address of the IP family of fd00::/8"},
		{to: "default/none", err: "no such Service"},
		{to: "10.96.0.10", want: []trace.Destination{{Addr: cluster}}, asked: []status.Filter{{Address: cluster}}},
		{to: "10.96.0.10:http", want: []trace.Destination{{Addr: cluster, Protocol: protoTCP, Port: 80}}, asked: []status.Filter{{Address: cluster}}},
		{to: "10.96.0.10:sql", err: "10.96.0.10 has no port sql"},
		{to: "172.18.0.11:53/udp", want: []trace.Destination{{Addr: netip.MustParseAddr("172.18.0.11"), Protocol: protoUDP, Port: 53}}, asked: []status.Filter{{}}},
		{to: "127.0.0.1", want: []trace.Destination{{Addr: netip.MustParseAddr("127.0.0.1")}}, asked: []status.Filter{{}}},
		{to: "172.18.0.12", want: []trace.Destination{{Addr: netip.MustParseAddr("172.18.0.12")}}, asked: []status.Filter{{Address: netip.MustParseAddr("172.18.0.12")}}},
		{from: "10.244.0.0/16", asked: []status.Filter{{}}},
	} {
		target, err := ParseTarget(test.to, test.from)
		if err != nil {
			t.Fatal(err)
		}
		var from reader
		filter, names, err := target.Resolve(t.Context(), &from, nodePorts())
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%q from %q: %v, want %q", test.to, test.from, err, test.err)
			}
			continue
		}
		if err != nil || names == nil || filter.From != target.From || filter.PerSecond != PerSecond {
			t.Errorf("%q from %q: %+v, %v", test.to, test.from, filter, err)
		}
		if diff := cmp.Diff(test.want, filter.To, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("%q from %q: -want +got:\n%s", test.to, test.from, diff)
		}
		if diff := cmp.Diff(test.asked, from.asked, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("%q from %q asks: -want +got:\n%s", test.to, test.from, diff)
		}
	}
}
