package netif

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func addrs(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

func texts(addrs []netip.Addr) []string {
	list := []string{}
	for _, addr := range addrs {
		list = append(list, addr.String())
	}
	return list
}

// TestPrimaryFirst covers what a namespace cannot easily show.
func TestPrimaryFirst(t *testing.T) {
	tests := []struct {
		name                string
		addrs, source, want []string
	}{
		{"no addresses", nil, []string{"192.0.2.9"}, nil},
		{"source that no interface bears", []string{"10.0.0.1", "10.0.0.2"}, []string{"192.0.2.9"}, []string{"10.0.0.1", "10.0.0.2"}},
		{"only IPv6", []string{"fd00::1", "fd00::2"}, []string{"fd00::2"}, []string{"fd00::2", "fd00::1"}},
		{"both", []string{"10.0.0.1", "10.0.0.2", "fd00::1", "fd00::2"}, []string{"10.0.0.2", "fd00::2"}, []string{"10.0.0.2", "fd00::2", "10.0.0.1", "fd00::1"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := primaryFirst(addrs(test.addrs...), func(there netip.Addr) (netip.Addr, bool) {
				for _, a := range addrs(test.source...) {
					if a.Is4() == there.Is4() {
						return a, true
					}
				}
				return netip.Addr{}, false
			})
			if diff := cmp.Diff(append([]string{}, test.want...), texts(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestFake holds the fake to what the kernel does.
func TestFake(t *testing.T) {
	ctx := t.Context()
	f := NewFake(addrs("10.0.0.2", "10.0.0.1", "fe80::1", "127.0.0.1", "10.0.0.1")...)
	got, err := f.Addrs()
	if diff := cmp.Diff([]string{"10.0.0.1", "10.0.0.2", "127.0.0.1"}, texts(got)); diff != "" || err != nil {
		t.Errorf("Addrs: %v (-want +got):\n%s", err, diff)
	}
	got, err = f.NodeAddrs()
	if diff := cmp.Diff([]string{"10.0.0.2", "10.0.0.1"}, texts(got)); diff != "" || err != nil {
		t.Errorf("NodeAddrs: %v (-want +got):\n%s", err, diff)
	}
	f.Fail(1)
	if _, err := f.Addrs(); err == nil {
		t.Error("no failure")
	}
	changed := f.Watch(ctx)
	f.Set(addrs("10.0.0.3")...)
	f.Set(addrs("10.0.0.4")...)
	<-changed
	if got, err := f.Addrs(); err != nil || len(got) != 1 || got[0] != netip.MustParseAddr("10.0.0.4") {
		t.Errorf("Addrs after Set: %v, %v", got, err)
	}
}
