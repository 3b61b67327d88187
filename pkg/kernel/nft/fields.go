package nft

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// field is a data type of nft, as a set's declaration names it.
type field struct {
	name string
	id   uint32 // nft's number of the type (enum datatypes), which it stores in NFTA_SET_KEY_TYPE
	size int    // in bytes, before padding
}

// The data types that keys and values are made of.
var (
	fieldInteger = field{"integer", 4, 4}
	fieldIPv4    = field{"ipv4_addr", 7, 4}
	fieldIPv6    = field{"ipv6_addr", 8, 16}
	fieldProto   = field{"inet_proto", 12, 1}
	fieldPort    = field{"inet_service", 13, 2}
	fieldMark    = field{"mark", 19, 4}
	fieldIfIndex = field{"iface_index", 20, 4}
	fieldIfName  = field{"ifname", 41, 16}
)

// fields lists them.
func fields() []field {
	return []field{fieldInteger, fieldIPv4, fieldIPv6, fieldProto, fieldPort, fieldMark, fieldIfIndex, fieldIfName}
}

// typeBits is how many bits a type's number takes in that of a concatenation.
const typeBits = 6

// fieldsOfType resolves NFTA_SET_KEY_TYPE; false if a type is not one of ours.
func fieldsOfType(typ uint32) ([]field, bool) {
	var out []field
	for ; typ != 0; typ >>= typeBits {
		i := slices.IndexFunc(fields(), func(f field) bool { return f.id == typ&(1<<typeBits-1) })
		if i < 0 {
			return nil, false
		}
		out = append(out, fields()[i])
	}
	slices.Reverse(out)
	return out, len(out) > 0
}

// width is the length of the fields in a key: each is padded to 4 bytes, unless it stands alone.
func width(fs []field) int {
	if len(fs) == 1 {
		return fs[0].size
	}
	n := 0
	for _, f := range fs {
		n += align4(f.size)
	}
	return n
}

// formatFields prints a key or value as nft does. What does not fit the fields is printed in hexadecimal.
func formatFields(fs []field, b []byte) string {
	if len(fs) == 0 || len(b) != width(fs) {
		return "0x" + hex.EncodeToString(b)
	}
	parts := make([]string, 0, len(fs))
	for _, f := range fs {
		parts = append(parts, f.format(b[:f.size]))
		b = b[min(align4(f.size), len(b)):]
	}
	return strings.Join(parts, " . ")
}

func (f field) format(b []byte) string {
	switch f.id {
	case fieldIPv4.id, fieldIPv6.id:
		a, _ := netip.AddrFromSlice(b)
		return a.String()
	case fieldProto.id:
		switch b[0] {
		case unix.IPPROTO_TCP:
			return "tcp"
		case unix.IPPROTO_UDP:
			return "udp"
		case unix.IPPROTO_SCTP:
			return "sctp"
		}
		return strconv.Itoa(int(b[0]))
	case fieldPort.id:
		return strconv.Itoa(int(binary.BigEndian.Uint16(b)))
	case fieldMark.id:
		return fmt.Sprintf("0x%08x", binary.NativeEndian.Uint32(b))
	case fieldIfName.id:
		return strconv.Quote(strings.TrimRight(string(b), "\x00"))
	}
	return strconv.FormatUint(uint64(binary.NativeEndian.Uint32(b)), 10)
}

// parseFields is the inverse of formatFields, for the forms that nft prints.
func parseFields(fs []field, text []string) ([]byte, error) {
	if len(fs) != len(text) {
		return nil, fmt.Errorf("%q has %d fields; the set's type has %d", strings.Join(text, " . "), len(text), len(fs))
	}
	var b []byte
	for i, f := range fs {
		v, err := f.parse(strings.TrimSpace(text[i]))
		if err != nil {
			return nil, err
		}
		b = append(b, v...)
		if len(fs) > 1 {
			b = appendPad(b, len(v))
		}
	}
	return b, nil
}

func (f field) parse(s string) ([]byte, error) {
	switch f.id {
	case fieldIPv4.id, fieldIPv6.id:
		a, err := netip.ParseAddr(s)
		if err != nil || len(a.AsSlice()) != f.size {
			return nil, fmt.Errorf("%q is not an %s", s, f.name)
		}
		return a.AsSlice(), nil
	case fieldProto.id:
		known := map[string]byte{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP, "sctp": unix.IPPROTO_SCTP}
		if n, ok := known[s]; ok {
			return []byte{n}, nil
		}
	case fieldIfName.id:
		if name := strings.Trim(s, `"`); name != "" && len(name) < f.size {
			return append([]byte(name), make([]byte, f.size-len(name))...), nil
		}
		return nil, fmt.Errorf("%q is not an interface's name", s)
	}
	n, err := strconv.ParseUint(s, 0, 8*f.size)
	if err != nil {
		return nil, fmt.Errorf("%q is not a value of type %s", s, f.name)
	}
	switch f.id {
	case fieldProto.id:
		return []byte{byte(n)}, nil
	case fieldPort.id:
		return binary.BigEndian.AppendUint16(nil, uint16(n)), nil
	}
	return binary.NativeEndian.AppendUint32(nil, uint32(n)), nil
}
