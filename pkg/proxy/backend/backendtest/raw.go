//go:build linux

package backendtest

import (
	"encoding/binary"
	"iter"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// sendRaw sends packets with their headers.
func sendRaw(t *testing.T, from *netns.Host, to netip.Addr, packets iter.Seq[[]byte]) {
	t.Helper()
	domain, sockaddr := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Addr: to.As16()})
	if to.Is4() {
		domain, sockaddr = unix.AF_INET, &unix.SockaddrInet4{Addr: to.As4()}
	}
	err := from.Do(func() error {
		fd, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for packet := range packets {
			if err := unix.Sendto(fd, packet, 0, sockaddr); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// packet returns an IP packet. It fills in the checksum of its segment or datagram, at an offset; the kernel fills in those of an IPv4 header.
func packet(protocol byte, source, dest netip.Addr, payload []byte, checksum int) []byte {
	size := len(payload)
	sum := uint32(protocol) + uint32(size)
	for _, part := range [][]byte{source.AsSlice(), dest.AsSlice(), payload} {
		for i, b := range part {
			sum += uint32(b) << (8 * (1 - i%2))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(payload[checksum:], ^uint16(sum))
	header := []byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0}
	if source.Is6() {
		header = []byte{0x60, 0, 0, 0, byte(size >> 8), byte(size), protocol, 64}
	}
	return slices.Concat(header, source.AsSlice(), dest.AsSlice(), payload)
}
