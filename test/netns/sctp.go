//go:build linux

package netns

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// The chunks of RFC 9260 section 3.2 that the lab supports.
const (
	sctpInit    = 1
	sctpInitAck = 2
	sctpAbort   = 6
)

const (
	sctpHeader = 12 // ports, verification tag, checksum (RFC 9260 section 3.1)
	initFixed  = 20 // an INIT chunk without parameters (section 3.3.2)
	// sctpCookie is the State Cookie parameter (section 3.3.3), which contains the
	// answer of the lab's servers.
	sctpCookie = 7
)

// sctpPacket is one SCTP packet with one chunk. The lab opens associations (INIT,
// INIT ACK), which is enough for load balancing and connection tracking, and ends
// them with ABORT.
type sctpPacket struct {
	source, destination uint16
	tag                 uint32 // verification tag: the receiver's own
	chunk, flags        uint8
	initiate            uint32 // INIT, INIT ACK: the sender's own tag
	cookie              []byte // INIT ACK
}

// encode returns the packet's bytes, starting with the SCTP header.
func (p sctpPacket) encode() []byte {
	var b []byte
	b = binary.BigEndian.AppendUint16(b, p.source)
	b = binary.BigEndian.AppendUint16(b, p.destination)
	b = binary.BigEndian.AppendUint32(b, p.tag)
	b = append(b, 0, 0, 0, 0, // the checksum, below
		p.chunk, p.flags, 0, 0)
	if p.chunk == sctpInit || p.chunk == sctpInitAck {
		b = binary.BigEndian.AppendUint32(b, p.initiate)
		b = binary.BigEndian.AppendUint32(b, 65536) // receiver window
		b = append(b, 0, 1, 0, 1)                   // one stream each way
		b = binary.BigEndian.AppendUint32(b, p.initiate)
	}
	if p.chunk == sctpInitAck {
		b = binary.BigEndian.AppendUint16(b, sctpCookie)
		b = binary.BigEndian.AppendUint16(b, uint16(4+len(p.cookie)))
		b = append(b, p.cookie...)
	}
	// The chunk's length does not include the last parameter's padding (section 3.2).
	binary.BigEndian.PutUint16(b[sctpHeader+2:], uint16(len(b)-sctpHeader))
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	binary.LittleEndian.PutUint32(b[8:], sctpChecksum(b))
	return b
}

// decodeSCTP parses a packet, starting with the SCTP header; the checksum must be
// correct.
func decodeSCTP(b []byte) (sctpPacket, error) {
	if len(b) < sctpHeader+4 {
		return sctpPacket{}, fmt.Errorf("truncated SCTP packet of %d bytes", len(b))
	}
	if got, want := binary.LittleEndian.Uint32(b[8:]), sctpChecksum(b); got != want {
		return sctpPacket{}, fmt.Errorf("SCTP checksum is %08x, want %08x", got, want)
	}
	p := sctpPacket{
		source: binary.BigEndian.Uint16(b), destination: binary.BigEndian.Uint16(b[2:]),
		tag:   binary.BigEndian.Uint32(b[4:]),
		chunk: b[sctpHeader], flags: b[sctpHeader+1],
	}
	length := int(binary.BigEndian.Uint16(b[sctpHeader+2:]))
	if length < 4 || length > len(b)-sctpHeader {
		return sctpPacket{}, fmt.Errorf("invalid SCTP chunk length %d in a packet of %d bytes", length, len(b))
	}
	if p.chunk != sctpInit && p.chunk != sctpInitAck {
		return p, nil
	}
	chunk := b[sctpHeader : sctpHeader+length]
	if len(chunk) < initFixed {
		return sctpPacket{}, errors.New("truncated SCTP INIT")
	}
	p.initiate = binary.BigEndian.Uint32(chunk[4:])
	if p.chunk == sctpInitAck {
		p.cookie = findCookie(chunk[initFixed:])
	}
	return p, nil
}

// findCookie returns the State Cookie of an INIT ACK's parameters.
func findCookie(parameters []byte) []byte {
	for len(parameters) >= 4 {
		length := int(binary.BigEndian.Uint16(parameters[2:]))
		if length < 4 || length > len(parameters) {
			return nil
		}
		if binary.BigEndian.Uint16(parameters) == sctpCookie {
			return parameters[4:length]
		}
		parameters = parameters[min((length+3)&^3, len(parameters)):]
	}
	return nil
}

// sctpChecksum returns the CRC32c of the packet with a checksum of zero (RFC 9260
// appendix A). It is stored with the least significant byte first.
func sctpChecksum(b []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Update(0, table, b[:8])
	sum = crc32.Update(sum, table, []byte{0, 0, 0, 0})
	return crc32.Update(sum, table, b[sctpHeader:])
}
