//go:build linux

package backendtest

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/test/cases"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// AffinityFlood opens connections from more sources than a backend remembers to one port of the case affinity: the clients of all
// other ports keep their endpoints.
func AffinityFlood(t *testing.T, dir string, open Open, sources int) {
	const flooded = 81
	for _, c := range cases.Named(t, dir, "affinity") {
		t.Run(c.Name, func(t *testing.T) {
			b := NewBench(t, open)
			b.Sync(t, c.Plan())
			at := slices.IndexFunc(c.Packets, func(p cases.Packet) bool { return p.To.Port() == flooded })
			if at < 0 {
				t.Fatalf("the case sends nothing to port %d", flooded)
			}
			Flood(t, b.Lab.Client, c.Packets[at].To, sources)
			c.Packets = slices.Delete(c.Packets, at, at+1)
			b.Ask(t, c)
		})
	}
}

// Flood sends a SYN from each of n sources that do not exist.
func Flood(t *testing.T, from *netns.Host, to netip.AddrPort, n int) {
	t.Helper()
	source := netip.MustParseAddr("198.18.0.0")
	if to.Addr().Is6() {
		source = netip.MustParseAddr("2001:db8:f::")
	}
	synFlood{source, n, n}.send(t, from, to)
}

// synFlood is n SYNs, each from another port, and from the addresses that follow a source in turn.
type synFlood struct {
	source     netip.Addr
	n, sources int
}

// next returns the address after those of the flood.
func (f synFlood) next() netip.Addr { return f.at(f.sources) }

func (f synFlood) at(number int) netip.Addr {
	addr := f.source.AsSlice()
	tail := addr[len(addr)-4:]
	binary.BigEndian.PutUint32(tail, binary.BigEndian.Uint32(tail)+uint32(number))
	source, _ := netip.AddrFromSlice(addr)
	return source
}

func (f synFlood) send(t *testing.T, from *netns.Host, to netip.AddrPort) {
	t.Helper()
	sendRaw(t, from, to.Addr(), func(yield func([]byte) bool) {
		for i := range f.n {
			segment := make([]byte, 20)
			binary.BigEndian.PutUint16(segment, uint16(1024+i%60_000))
			binary.BigEndian.PutUint16(segment[2:], to.Port())
			segment[12], segment[13] = byte(len(segment)/4<<4), 2 // the length of the header, and SYN
			binary.BigEndian.PutUint16(segment[14:], 64_240)
			if !yield(packet(unix.IPPROTO_TCP, f.at(1+i%f.sources), to.Addr(), segment, 16)) {
				return
			}
		}
	})
}
