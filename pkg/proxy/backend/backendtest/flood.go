//go:build linux

package backendtest

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/test/cases"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// AffinityFlood opens connections from more sources than a backend remembers to one port of the case affinity: the clients of all
// other ports keep their endpoints.
func AffinityFlood(t *testing.T, dir string, open Open, sources int) {
	all, err := cases.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	all = slices.DeleteFunc(all, func(c *cases.Case) bool { return !strings.HasPrefix(c.Name, "affinity/") })
	if len(all) == 0 {
		t.Fatalf("%s has no case affinity", dir)
	}
	const flooded = 81
	for _, c := range all {
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

func (f synFlood) send(t *testing.T, from *netns.Host, to netip.AddrPort) {
	t.Helper()
	domain, sockaddr := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{})
	if to.Addr().Is4() {
		sockaddr = &unix.SockaddrInet4{Addr: to.Addr().As4()}
	} else {
		domain, sockaddr = unix.AF_INET6, &unix.SockaddrInet6{Addr: to.Addr().As16()}
	}
	first, now := f.source.AsSlice(), f.source.AsSlice()
	err := from.Do(func() error {
		fd, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for i := range f.n {
			tail := len(first) - 4
			binary.BigEndian.PutUint32(now[tail:], binary.BigEndian.Uint32(first[tail:])+1+uint32(i%f.sources))
			if err := unix.Sendto(fd, syn(now, to, uint16(1024+i%60_000)), 0, sockaddr); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// syn returns an IP packet that opens a TCP connection. The kernel fills in the checksum of an IPv4 header.
func syn(source []byte, to netip.AddrPort, port uint16) []byte {
	const headerLen = 20
	segment := make([]byte, headerLen)
	binary.BigEndian.PutUint16(segment, port)
	binary.BigEndian.PutUint16(segment[2:], to.Port())
	segment[12], segment[13] = headerLen/4<<4, 2
	binary.BigEndian.PutUint16(segment[14:], 64_240)
	dest := to.Addr().AsSlice()
	sum := uint32(unix.IPPROTO_TCP + headerLen)
	for _, part := range [][]byte{source, dest, segment} {
		for i := 0; i < len(part); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(part[i:]))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(segment[16:], ^uint16(sum))
	var header []byte
	if len(source) == 4 {
		header = []byte{0x45, 0, 0, 2 * headerLen, 0, 0, 0, 0, 64, unix.IPPROTO_TCP, 0, 0}
	} else {
		header = []byte{0x60, 0, 0, 0, 0, headerLen, unix.IPPROTO_TCP, 64}
	}
	header = append(append(header, source...), dest...)
	return append(header, segment...)
}
