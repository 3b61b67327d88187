package nfttest

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// field is a data type of nft: the number by which nft stores it in NFTA_SET_KEY_TYPE (enum datatypes).
type field uint32

// The data types of keys and values.
const (
	fieldInteger field = 4
	fieldIPv4    field = 7
	fieldIPv6    field = 8
	fieldProto   field = 12
	fieldPort    field = 13
	fieldMark    field = 19
	fieldIfIndex field = 20
	fieldIfName  field = 41
)

// types are the names of the types in a declaration, and their sizes in bytes before padding.
var types = map[field]struct {
	name string
	size int
}{
	fieldInteger: {"integer", 4}, fieldIPv4: {"ipv4_addr", 4}, fieldIPv6: {"ipv6_addr", 16}, fieldProto: {"inet_proto", 1},
	fieldPort: {"inet_service", 2}, fieldMark: {"mark", 4}, fieldIfIndex: {"iface_index", 4}, fieldIfName: {"ifname", 16},
}

func (f field) size() int { return types[f].size }

// width returns the length of the fields in a key: each is padded to 4 bytes, unless it is the only one.
func width(fs []field) int {
	if len(fs) == 1 {
		return fs[0].size()
	}
	n := 0
	for _, f := range fs {
		n += netlink.Align(f.size())
	}
	return n
}

// formatFields formats a key or value as nft does, or in hexadecimal if it does not fit the fields.
func formatFields(fs []field, b []byte) string {
	if len(fs) == 0 || len(b) != width(fs) {
		return "0x" + hex.EncodeToString(b)
	}
	parts := make([]string, 0, len(fs))
	for _, f := range fs {
		parts = append(parts, f.format(b[:f.size()]))
		b = b[min(netlink.Align(f.size()), len(b)):]
	}
	return strings.Join(parts, " . ")
}

func (f field) format(b []byte) string {
	switch f {
	case fieldIPv4, fieldIPv6:
		a, _ := netip.AddrFromSlice(b)
		return a.String()
	case fieldProto:
		switch b[0] {
		case unix.IPPROTO_TCP:
			return "tcp"
		case unix.IPPROTO_UDP:
			return "udp"
		case unix.IPPROTO_SCTP:
			return "sctp"
		}
		return strconv.Itoa(int(b[0]))
	case fieldPort:
		return strconv.Itoa(int(binary.BigEndian.Uint16(b)))
	case fieldMark:
		return fmt.Sprintf("0x%08x", binary.NativeEndian.Uint32(b))
	case fieldIfName:
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
			b = append(b, make([]byte, netlink.Align(len(v))-len(v))...)
		}
	}
	return b, nil
}

func (f field) parse(s string) ([]byte, error) {
	name, size := types[f].name, f.size()
	switch f {
	case fieldIPv4, fieldIPv6:
		a, err := netip.ParseAddr(s)
		if err != nil || len(a.AsSlice()) != size {
			return nil, fmt.Errorf("%q is not an %s", s, name)
		}
		return a.AsSlice(), nil
	case fieldProto:
		known := map[string]byte{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP, "sctp": unix.IPPROTO_SCTP}
		if n, ok := known[s]; ok {
			return []byte{n}, nil
		}
	case fieldIfName:
		if s := strings.Trim(s, `"`); s != "" && len(s) < size {
			return append([]byte(s), make([]byte, size-len(s))...), nil
		}
		return nil, fmt.Errorf("%q is not an interface's name", s)
	}
	n, err := strconv.ParseUint(s, 0, 8*size)
	if err != nil {
		return nil, fmt.Errorf("%q is not a value of type %s", s, name)
	}
	switch f {
	case fieldProto:
		return []byte{byte(n)}, nil
	case fieldPort:
		return binary.BigEndian.AppendUint16(nil, uint16(n)), nil
	}
	return binary.NativeEndian.AppendUint32(nil, uint32(n)), nil
}
