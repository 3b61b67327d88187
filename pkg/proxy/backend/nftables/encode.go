package nftables

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Keys and values are concatenations: each field begins at a multiple of 4 bytes and is padded with zeros.
// Fields are in network order, but for the slot: numgen writes the host's integers.

// appendFrontend encodes address . protocol . port, or protocol . port of a node port.
func appendFrontend(b []byte, f plan.Frontend) []byte {
	if !f.IsNodePort() {
		b = appendAddr(b, f.Addr)
	}
	b = append(b, byte(f.Protocol), 0, 0, 0)
	return append(b, byte(f.Port>>8), byte(f.Port), 0, 0)
}

func appendAddr(b []byte, addr netip.Addr) []byte {
	if addr.Is4() {
		a := addr.As4()
		return append(b, a[:]...)
	}
	a := addr.As16()
	return append(b, a[:]...)
}

func appendSlot(b []byte, slot int) []byte { return binary.NativeEndian.AppendUint32(b, uint32(slot)) }

// appendEndpoint encodes address . port.
func appendEndpoint(b []byte, e netip.AddrPort) []byte {
	b = appendAddr(b, e.Addr())
	return append(b, byte(e.Port()>>8), byte(e.Port()), 0, 0)
}

// appendPool encodes the two constants that name a pool.
func appendPool(b []byte, pool poolID) []byte {
	high, low := pool.words()
	return binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(b, high), low)
}

// decoder reads keys and values of one family.
type decoder struct {
	family cluster.Family
}

// fields of a key or value that is being read; ok turns false when they do not fit.
type fields struct {
	rest []byte
	ok   bool
}

func (f *fields) take(n int) []byte {
	padded := (n + 3) &^ 3
	if !f.ok || len(f.rest) < padded {
		f.ok = false
		return make([]byte, n)
	}
	field := f.rest[:n]
	f.rest = f.rest[padded:]
	return field
}

func (f *fields) port() uint16 { return binary.BigEndian.Uint16(f.take(2)) }

func (f *fields) number() uint32 { return binary.NativeEndian.Uint32(f.take(4)) }

func (f *fields) pool() poolID { return poolID(f.number())<<32 | poolID(f.number()) }

func (d decoder) addr(f *fields) netip.Addr {
	n := 4
	if d.family == cluster.IPv6 {
		n = 16
	}
	addr, _ := netip.AddrFromSlice(f.take(n))
	return addr
}

// frontend reads a key of a verdict map, or of a slot map when slotted.
func (d decoder) frontend(key []byte, nodePort, slotted bool) (frontend plan.Frontend, slot int, err error) {
	f := fields{rest: key, ok: true}
	if nodePort {
		frontend.Addr = netip.IPv4Unspecified()
		if d.family == cluster.IPv6 {
			frontend.Addr = netip.IPv6Unspecified()
		}
	} else {
		frontend.Addr = d.addr(&f)
	}
	frontend.Protocol = cluster.Protocol(f.take(1)[0])
	frontend.Port = f.port()
	if slotted {
		slot = int(f.number())
	}
	if !f.ok || len(f.rest) > 0 {
		return plan.Frontend{}, 0, fmt.Errorf("key %x has another layout", key)
	}
	return frontend, slot, nil
}

// endpoint reads a value of a slot map.
func (d decoder) endpoint(value []byte) (netip.AddrPort, error) {
	f := fields{rest: value, ok: true}
	addr, port := d.addr(&f), f.port()
	if !f.ok || len(f.rest) > 0 {
		return netip.AddrPort{}, fmt.Errorf("value %x has another layout", value)
	}
	return netip.AddrPortFrom(addr, port), nil
}

// member reads a key of a set of addresses; hairpins repeat theirs.
func (d decoder) member(key []byte, pair bool) (netip.Addr, error) {
	f := fields{rest: key, ok: true}
	addr := d.addr(&f)
	if pair && d.addr(&f) != addr || !f.ok || len(f.rest) > 0 {
		return netip.Addr{}, fmt.Errorf("key %x has another layout", key)
	}
	return addr, nil
}

// sticky reads a key of the set of sticky endpoints.
func (d decoder) sticky(key []byte) (pool poolID, endpoint netip.AddrPort, err error) {
	f := fields{rest: key, ok: true}
	addr, port := d.addr(&f), f.port()
	pool = f.pool()
	if !f.ok || len(f.rest) > 0 {
		return 0, netip.AddrPort{}, fmt.Errorf("key %x has another layout", key)
	}
	return pool, netip.AddrPortFrom(addr, port), nil
}

// client reads, of a key of an affinity map, whose client it is.
func (d decoder) client(key []byte) (poolID, error) {
	f := fields{rest: key, ok: true}
	d.addr(&f)
	f.take(1)
	pool := f.pool()
	if !f.ok || len(f.rest) > 0 {
		return 0, fmt.Errorf("key %x has another layout", key)
	}
	return pool, nil
}
