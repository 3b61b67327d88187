package netlink

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// nfgenmsgLen is the size of struct nfgenmsg, which stands between the netlink header and the attributes.
const nfgenmsgLen = 4

// Offsets in struct nlmsghdr.
const (
	typeOffset  = 4
	flagsOffset = 6
	seqOffset   = 8
)

// Header is what the headers of a message say.
type Header struct {
	// Type is nlmsg_type: of netfilter's messages NFNL_SUBSYS_*<<8 | command.
	Type uint16
	// Flags are NLM_F_*.
	Flags uint16
	// Family is nfgen_family: NFPROTO_*.
	Family byte
	// Resource is res_id, whose meaning depends on the type; mostly 0.
	Resource uint16
}

// AppendMessage begins a message, with the sequence number 0. EndMessage sets its length.
func AppendMessage(b []byte, h Header) []byte {
	b = append(b, 0, 0, 0, 0)
	b = binary.NativeEndian.AppendUint16(b, h.Type)
	b = binary.NativeEndian.AppendUint16(b, h.Flags)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0) // sequence number and port id
	b = append(b, h.Family, unix.NFNETLINK_V0)
	return binary.BigEndian.AppendUint16(b, h.Resource)
}

// EndMessage sets the length of the message that begins at start and ends at the end of b.
func EndMessage(b []byte, start int) {
	binary.NativeEndian.PutUint32(b[start:], uint32(len(b)-start))
}

// SetSeq sets the sequence number of the message that begins at start.
func SetSeq(b []byte, start int, seq uint32) { binary.NativeEndian.PutUint32(b[start+seqOffset:], seq) }

// SetFlags sets the flags of the message that begins at start.
func SetFlags(b []byte, start int, flags uint16) {
	binary.NativeEndian.PutUint16(b[start+flagsOffset:], flags)
}

// Message is one netlink message.
type Message struct {
	Header
	Seq uint32
	// body is what follows nlmsghdr.
	body []byte
}

// Attrs reads the attributes that follow nfgenmsg.
func (m Message) Attrs() Attrs {
	if len(m.body) < nfgenmsgLen {
		return Attrs{}
	}
	return ReadAttrs(m.body[nfgenmsgLen:])
}

// Attr returns the value of the first attribute of a type, or nil.
func (m Message) Attr(typ uint16) []byte { return m.Attrs().Find(typ) }

// AttrString returns the value of the first attribute of a type as a string, or "".
func (m Message) AttrString(typ uint16) string { return String(m.Attr(typ)) }

// Messages reads the messages in a byte slice, one after the other:
//
//	for m := netlink.ReadMessages(b); m.Next(); { switch m.Type {...} }
type Messages struct {
	Message
	// Offset is where the message begins in the slice.
	Offset int

	data      []byte
	next      int
	malformed bool
}

// ReadMessages returns a reader that stands before the first message in b.
func ReadMessages(b []byte) Messages { return Messages{data: b} }

// Next goes on to the next message, and returns false if there is none.
func (m *Messages) Next() bool {
	rest := m.data[m.next:]
	if len(rest) < unix.NLMSG_HDRLEN {
		m.malformed = m.malformed || len(rest) > 0
		return false
	}
	n := int(binary.NativeEndian.Uint32(rest))
	if n < unix.NLMSG_HDRLEN || n > len(rest) {
		m.malformed = true
		return false
	}
	m.Offset = m.next
	m.Message = Message{
		Header: Header{
			Type:  binary.NativeEndian.Uint16(rest[typeOffset:]),
			Flags: binary.NativeEndian.Uint16(rest[flagsOffset:]),
		},
		Seq:  binary.NativeEndian.Uint32(rest[seqOffset:]),
		body: rest[unix.NLMSG_HDRLEN:n],
	}
	if len(m.body) >= nfgenmsgLen {
		m.Family, m.Resource = m.body[0], binary.BigEndian.Uint16(m.body[2:])
	}
	m.next += min(Align(n), len(rest))
	return true
}

// Malformed reports whether reading ended at something that is not a message.
func (m *Messages) Malformed() bool { return m.malformed }
