//go:build linux

package netns

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSCTPChecksum(t *testing.T) {
	// RFC 3720 appendix B.4: the CRC32c of 32 bytes of zero is 8a9136aa.
	if got := sctpChecksum(make([]byte, 32)); got != 0x8a9136aa {
		t.Errorf("the checksum of 32 zero bytes is %08x", got)
	}
	// The checksum field itself counts as zero.
	filled := make([]byte, 32)
	copy(filled[8:], "\xff\xff\xff\xff")
	if got := sctpChecksum(filled); got != 0x8a9136aa {
		t.Errorf("the checksum of 32 zero bytes with the checksum field set is %08x", got)
	}
}

func TestSCTPPackets(t *testing.T) {
	for _, packet := range []sctpPacket{
		{source: 1, destination: 65535, chunk: sctpInit, initiate: 7},
		{source: 80, destination: 2, tag: 7, chunk: sctpInitAck, initiate: 1 << 31, cookie: []byte("odd")},
		{source: 80, destination: 2, tag: 7, chunk: sctpAbort},
	} {
		encoded := packet.encode()
		if len(encoded)%4 != 0 {
			t.Errorf("%+v has %d bytes, want a multiple of 4", packet, len(encoded))
		}
		got, err := decodeSCTP(encoded)
		if diff := cmp.Diff(packet, got, cmp.AllowUnexported(sctpPacket{})); err != nil || diff != "" {
			t.Errorf("%+v came back different: %v %s", packet, err, diff)
		}
		for i := range encoded {
			broken := bytes.Clone(encoded)
			broken[i] ^= 0x10
			if _, err := decodeSCTP(broken); err == nil {
				t.Errorf("no error for %+v with byte %d changed", packet, i)
			}
		}
		for n := range encoded {
			if _, err := decodeSCTP(encoded[:n]); err == nil {
				t.Errorf("no error for %+v cut to %d bytes", packet, n)
			}
		}
	}
}

func FuzzDecodeSCTP(f *testing.F) {
	f.Add(sctpPacket{chunk: sctpInit, initiate: 7}.encode())
	f.Add(sctpPacket{chunk: sctpInitAck, initiate: 7, cookie: []byte("cookie")}.encode())
	f.Fuzz(func(_ *testing.T, packet []byte) {
		if len(packet) >= sctpHeader { // get past the checksum
			sum := sctpChecksum(packet)
			copy(packet[8:], []byte{byte(sum), byte(sum >> 8), byte(sum >> 16), byte(sum >> 24)})
		}
		_, _ = decodeSCTP(packet)
	})
}

func TestLine(t *testing.T) {
	said := line{
		endpoint: "pod1a", reached: netip.MustParseAddrPort("10.244.1.2:8080"),
		source: netip.MustParseAddrPort("[fd00::1]:43210"), asked: "x7",
	}
	if want := "pod1a 10.244.1.2:8080 [fd00::1]:43210 x7\n"; said.String() != want {
		t.Errorf("a server's answer is %q, want %q", said, want)
	}
	for _, asked := range []string{"x7", ""} {
		said.asked = asked
		if got, err := parseLine(said.String()); err != nil || got != said {
			t.Errorf("%q was parsed as %+v, %v", said, got, err)
		}
	}
	for _, text := range []string{"", "HTTP/1.1 400 Bad Request", "pod1a 10.244.1.2 10.0.0.1:1", "pod1a 10.244.1.2:1 nobody", "a b c d e"} {
		if got, err := parseLine(text); err == nil {
			t.Errorf("no error for %q, parsed as %+v", text, got)
		}
	}
}

func TestICMPVerdict(t *testing.T) {
	four, six := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	for _, c := range []struct {
		icmp ICMP
		want Verdict
	}{
		{ICMP{3, 0, four}, Unreachable}, // network
		{ICMP{3, 1, four}, Unreachable}, // host
		{ICMP{3, 2, four}, Refused},     // protocol
		{ICMP{3, 3, four}, Refused},     // port
		{ICMP{3, 9, four}, Refused},     // network prohibited
		{ICMP{3, 10, four}, Refused},    // host prohibited
		{ICMP{3, 13, four}, Refused},    // prohibited
		{ICMP{11, 0, four}, Unreachable},
		{ICMP{1, 0, six}, Unreachable}, // no route
		{ICMP{1, 1, six}, Refused},     // prohibited
		{ICMP{1, 3, six}, Unreachable}, // address
		{ICMP{1, 4, six}, Refused},     // port
		{ICMP{1, 5, six}, Refused},     // policy
		{ICMP{1, 6, six}, Unreachable}, // reject route
		{ICMP{3, 0, six}, Unreachable}, // hop limit
		{ICMP{4, 1, six}, Refused},     // unknown next header
	} {
		if got := c.icmp.verdict(); got != c.want {
			t.Errorf("%v means %v, want %v", c.icmp, got, c.want)
		}
	}
}
