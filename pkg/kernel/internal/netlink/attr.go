package netlink

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// AttrHeaderLen is the size of struct nlattr.
const AttrHeaderLen = unix.SizeofNlAttr

// typeMask is NLA_TYPE_MASK: an attribute's type without NLA_F_NESTED and NLA_F_NET_BYTEORDER.
const typeMask = 0x3fff

// Align rounds a length up to NLA_ALIGNTO and NLMSG_ALIGNTO, which are the same.
func Align(n int) int { return (n + unix.NLA_ALIGNTO - 1) &^ (unix.NLA_ALIGNTO - 1) }

func appendHeader(b []byte, typ uint16, payload int) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(AttrHeaderLen+payload))
	return binary.NativeEndian.AppendUint16(b, typ)
}

func appendPadding(b []byte, payload int) []byte {
	for n := payload; n != Align(n); n++ {
		b = append(b, 0)
	}
	return b
}

// AppendBytes appends an attribute with the value v.
func AppendBytes(b []byte, typ uint16, v []byte) []byte {
	b = appendHeader(b, typ, len(v))
	b = append(b, v...)
	return appendPadding(b, len(v))
}

// AppendString appends an attribute with the value v and a final NUL.
func AppendString(b []byte, typ uint16, v string) []byte {
	b = appendHeader(b, typ, len(v)+1)
	b = append(b, v...)
	b = append(b, 0)
	return appendPadding(b, len(v)+1)
}

// AppendUint32 appends an attribute with the value v in network order.
func AppendUint32(b []byte, typ uint16, v uint32) []byte {
	b = appendHeader(b, typ, 4)
	return binary.BigEndian.AppendUint32(b, v)
}

// BeginNest begins an attribute that holds attributes. EndNest sets its length.
func BeginNest(b []byte, typ uint16) (_ []byte, start int) {
	return appendHeader(b, typ|unix.NLA_F_NESTED, 0), len(b)
}

// EndNest sets the length of the attribute that begins at start and ends at the end of b.
func EndNest(b []byte, start int) {
	binary.NativeEndian.PutUint16(b[start:], uint16(len(b)-start))
}

// Attrs reads the attributes in a byte slice, one after the other:
//
//	for a := netlink.ReadAttrs(b); a.Next(); { switch a.Type {...} }
type Attrs struct {
	// Type is the attribute's type, without flags.
	Type uint16
	// IsNest reports whether the attribute is marked as one that holds attributes. The kernel does not always mark them.
	IsNest bool
	// Data is the attribute's value, without header and padding.
	Data []byte

	rest      []byte
	malformed bool
}

// ReadAttrs returns a reader that stands before the first attribute in b.
func ReadAttrs(b []byte) Attrs { return Attrs{rest: b} }

// Next goes on to the next attribute, and returns false if there is none.
func (a *Attrs) Next() bool {
	if len(a.rest) < AttrHeaderLen {
		a.malformed = a.malformed || len(a.rest) > 0
		return false
	}
	n := int(binary.NativeEndian.Uint16(a.rest))
	if n < AttrHeaderLen || n > len(a.rest) {
		a.malformed = true
		return false
	}
	typ := binary.NativeEndian.Uint16(a.rest[2:])
	a.Type, a.IsNest = typ&typeMask, typ&unix.NLA_F_NESTED != 0
	a.Data = a.rest[AttrHeaderLen:n]
	a.rest = a.rest[min(Align(n), len(a.rest)):]
	return true
}

// Malformed reports whether reading ended at something that is not an attribute, or a number did not have its size.
func (a *Attrs) Malformed() bool { return a.malformed }

// Rest is what follows the attribute, or all before the first one.
func (a Attrs) Rest() []byte { return a.rest }

// Nested reads the attributes that the attribute holds.
func (a *Attrs) Nested() Attrs { return ReadAttrs(a.Data) }

// Uint16 returns the value as a number in network order.
func (a *Attrs) Uint16() uint16 { return binary.BigEndian.Uint16(a.number(2)) }

// Uint32 returns the value as a number in network order.
func (a *Attrs) Uint32() uint32 { return binary.BigEndian.Uint32(a.number(4)) }

// Uint64 returns the value as a number in network order.
func (a *Attrs) Uint64() uint64 { return binary.BigEndian.Uint64(a.number(8)) }

// number returns the value if it has a size, or zeros.
func (a *Attrs) number(size int) []byte {
	if len(a.Data) != size {
		a.malformed = true
		return make([]byte, size)
	}
	return a.Data
}

// String returns the value as a string.
func (a *Attrs) String() string { return String(a.Data) }

// Find returns the value of the next attribute of a type, or nil if there is none.
func (a Attrs) Find(typ uint16) []byte {
	for a.Next() {
		if a.Type == typ {
			return a.Data
		}
	}
	return nil
}

// FindUint32 returns the value of the next attribute of a type as a number in network order, or 0 if there is none.
func (a Attrs) FindUint32(typ uint16) uint32 {
	if v := a.Find(typ); len(v) == 4 {
		return binary.BigEndian.Uint32(v)
	}
	return 0
}

// Attr returns the value of the first attribute of a type in b, or nil if there is none.
func Attr(b []byte, typ uint16) []byte { return ReadAttrs(b).Find(typ) }

// String returns an attribute's value as a string, without the final NUL.
func String(v []byte) string {
	if len(v) > 0 && v[len(v)-1] == 0 {
		v = v[:len(v)-1]
	}
	return string(v)
}
