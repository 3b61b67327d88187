package nfttest

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

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
	name, size := f.spec()
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
