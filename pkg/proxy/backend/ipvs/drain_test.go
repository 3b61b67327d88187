package ipvs

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipvs"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
)

// TestDrain checks that what connections use is kept, and gets no new ones: a server with its address, and an address that a socket has.
func TestDrain(t *testing.T) {
	objects := nodeWith()
	dns, nodePort, idle := server(udp, "10.96.0.10:53"), server(tcp, "192.0.2.1:30080"), server(tcp, "[fd00::10]:80")
	objects.Dummies[device] = append(objects.Dummies[device], addr("10.96.0.11"))
	objects.Backends = map[ipvs.Server][]ipvs.Destination{
		dns:      {{Addr: netip.MustParseAddrPort("10.244.0.1:53"), Weight: 1, Connections: 1}, {Addr: netip.MustParseAddrPort("10.244.0.2:53"), Weight: 1}},
		nodePort: {{Addr: netip.MustParseAddrPort("10.244.0.1:80"), Weight: 1}},
		idle:     {{Addr: netip.MustParseAddrPort("[fd00:244::1]:80"), Weight: 1}},
	}
	objects.Sockets = map[netip.Addr]bool{addr("10.96.0.11"): true, addr("192.0.2.1"): true}
	var last backend.Left
	left := func(when string, wantLeft bool, servers []ipvs.Server, addrs ...string) {
		t.Helper()
		left, err := (Mode{Objects: objects}).Drain(t.Context(), last)
		if err != nil || len(left) > 0 != wantLeft {
			t.Fatalf("%s: left is %v, %v", when, left, err)
		}
		last = left
		var have []string
		for _, a := range objects.Dummies[device] {
			have = append(have, a.String())
		}
		servers = append(servers, nodeWith().Virtual[7:]...) // another program's
		if !slices.Equal(have, addrs) || !slices.Equal(objects.Virtual, servers) {
			t.Errorf("%s: the device has %q, want %q; servers are %v, want %v", when, have, addrs, objects.Virtual, servers)
		}
	}
	left("all", true, []ipvs.Server{server(tcp, "10.96.0.10:80"), dns}, "10.96.0.10", "10.96.0.11")
	for _, d := range objects.Backends[dns] {
		if d.Weight != 0 {
			t.Errorf("%s gets new connections", d.Addr)
		}
	}
	if !objects.Sources[addr("10.96.0.11")] {
		t.Error("new connections of the machine still come from an address of the device")
	}
	objects.Backends[dns][0].Connections = 0
	left("a socket", true, nil, "10.96.0.11")
	if len(objects.Sources) != 1 {
		t.Errorf("there are routes to %v, want one", objects.Sources)
	}
	if len(objects.Named) != len(nodeWith().Named) {
		t.Errorf("the sets that identify node ports are gone: %v", objects.Named)
	}
	delete(objects.Sockets, addr("10.96.0.11"))
	left("none", false, nil)
	if len(objects.Sources) > 0 {
		t.Errorf("left are the routes to %v", objects.Sources)
	}
	if _, exists := objects.Dummies[device]; exists || len(objects.Named) != 3 {
		t.Errorf("left are %+v", objects)
	}
}

// TestDrainNodePort checks that a connection to a node port keeps the servers of its address, and what identifies them.
func TestDrainNodePort(t *testing.T) {
	objects := nodeWith()
	nodePort := server(tcp, "192.0.2.1:30080")
	objects.Backends = map[ipvs.Server][]ipvs.Destination{nodePort: {{Addr: netip.MustParseAddrPort("10.244.0.1:80"), Weight: 1, Connections: 1}}}
	for range 2 {
		if left, err := (Mode{Objects: objects}).Drain(t.Context(), nil); err != nil || len(left) == 0 || !slices.Contains(objects.Virtual, nodePort) {
			t.Errorf("left is %v, %v; servers are %v", left, err, objects.Virtual)
		}
	}
	objects.Backends = nil
	if left, err := (Mode{Objects: objects}).Drain(t.Context(), nil); err != nil || len(left) > 0 || slices.Contains(objects.Virtual, nodePort) {
		t.Errorf("at last: left is %v, %v; servers are %v", left, err, objects.Virtual)
	}
}

// TestDrainKeepsNodeAddress checks that the route to an address that another device has too, such as an external IP that is the node's
// own, is not touched, and that the node's sockets with this address do not keep the device.
func TestDrainKeepsNodeAddress(t *testing.T) {
	objects := nodeWith()
	objects.Dummies[device] = append(objects.Dummies[device], objects.Others...)
	objects.Sockets = map[netip.Addr]bool{addr("fd00::10"): true}
	for _, own := range objects.Others {
		objects.Sockets[own] = true
	}
	if left, err := (Mode{Objects: objects}).Drain(t.Context(), nil); err != nil || len(left) != 1+1 || !left["fd00::10"] {
		t.Errorf("left is %v, %v; want an address and its server", left, err)
	}
	for _, own := range objects.Others {
		if objects.Sources[own] {
			t.Errorf("the local route to %s, which another device has, is replaced", own)
		}
	}
	if !objects.Sources[addr("fd00::10")] {
		t.Error("the local route to fd00::10 is not replaced")
	}
}

// TestDrainUnseen checks that all is kept whose use cannot be found out, and the rest is removed.
func TestDrainUnseen(t *testing.T) {
	objects := nodeWith()
	objects.Virtual = slices.DeleteFunc(objects.Virtual, func(s ipvs.Server) bool { return s.Addr.Addr() == addr("fd00::10") })
	objects.Unseen = errors.New("no")
	left, err := (Mode{Objects: objects}).Drain(t.Context(), nil)
	if !errors.Is(err, objects.Unseen) || len(left) != len(objects.Virtual)-3+2 || len(objects.Virtual) != 9 {
		t.Errorf("left is %v, %v; servers are %v", left, err, objects.Virtual)
	}
	objects.Unseen = nil
	if left, err := (Mode{Objects: objects}).Drain(t.Context(), left); err != nil || len(left) > 0 || len(objects.Virtual) != 3 {
		t.Errorf("when all is seen, left is %v, %v; servers are %v", left, err, objects.Virtual)
	}
	objects = nodeWith()
	objects.Refuse = errors.New("no")
	left, err = (Mode{Objects: objects}).Drain(t.Context(), nil)
	if !errors.Is(err, objects.Refuse) || len(left) != 7+2 || len(objects.Named) != len(nodeWith().Named) {
		t.Errorf("left is %v, %v; sets are %v", left, err, objects.Named)
	}
}

// TestDrainRival checks that a call changes nothing if there is more than the last one has left, and that it ends with its context.
func TestDrainRival(t *testing.T) {
	dns := server(udp, "10.96.0.10:53")
	pod := ipvs.Destination{Addr: netip.MustParseAddrPort("10.244.0.1:53"), Weight: 1, Connections: 1}
	for name, write := range map[string]func(*fake){
		"weight":  func(f *fake) { f.Backends[dns][0].Weight = 1 },
		"server":  func(f *fake) { f.Virtual = append(f.Virtual, server(tcp, "10.96.0.10:81")) },
		"address": func(f *fake) { f.Dummies[device] = append(f.Dummies[device], addr("10.96.0.12")) },
	} {
		t.Run(name, func(t *testing.T) {
			written := func() (*fake, backend.Left) {
				objects := nodeWith()
				objects.Backends = map[ipvs.Server][]ipvs.Destination{dns: {pod}}
				left, err := (Mode{Objects: objects}).Drain(t.Context(), nil)
				if err != nil || !left[dns.String()] || !left["10.96.0.10"] {
					t.Fatalf("left is %v, %v", left, err)
				}
				write(objects)
				return objects, left
			}
			objects, last := written()
			want, _ := written()
			if left, err := (Mode{Objects: objects}).Drain(t.Context(), last); !errors.Is(err, backend.ErrRival) || len(left) > 0 {
				t.Errorf("left is %v, %v", left, err)
			}
			if diff := cmp.Diff(want, objects, cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}), cmpopts.IgnoreUnexported(ipvs.Destination{})); diff != "" {
				t.Errorf("changed (-want +got):\n%s", diff)
			}
			ended, end := context.WithCancel(t.Context())
			end()
			if left, err := (Mode{Objects: objects}).Drain(ended, last); !errors.Is(err, context.Canceled) || len(left) != len(last) {
				t.Errorf("ended: left is %v, %v", left, err)
			}
		})
	}
}
