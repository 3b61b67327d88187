package ipt

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// rule is an entry of x_tables with a target, and data after the target's head.
func (l layout) rule(target string, data []byte) []byte {
	size := l.size + targetData + len(data)
	entry := make([]byte, (size+7)/8*8)
	binary.NativeEndian.PutUint16(entry[l.targetOffset:], uint16(l.size))
	binary.NativeEndian.PutUint16(entry[l.nextOffset:], uint16(len(entry)))
	binary.NativeEndian.PutUint16(entry[l.size:], uint16(len(entry)-l.size))
	copy(entry[l.size+nameAt:l.size+targetData-1], target)
	copy(entry[l.size+targetData:], data)
	return entry
}

// FuzzEntries gives the reader of x_tables arbitrary entries: it must end, count each at most once, and stay within the slice.
func FuzzEntries(f *testing.F) {
	v4 := layoutOf(IPv4)
	verdict := binary.NativeEndian.AppendUint32(nil, 0)
	table := slices.Concat(v4.rule("", verdict), v4.rule(errorTarget, append([]byte("KUBE-SERVICES"), 0)),
		v4.rule("DNAT", []byte("10.0.0.1:80")), v4.rule("", verdict), v4.rule(errorTarget, append([]byte(errorTarget), 0)))
	f.Add(table, uint32(0), uint32(0), true)
	f.Add(table[:len(table)-4], uint32(8), uint32(1<<31), true)
	f.Add(bytes.Repeat([]byte{0xff}, 300), uint32(1), uint32(2), false)
	f.Fuzz(func(t *testing.T, entries []byte, hook, other uint32, four bool) {
		family := IPv6
		if four {
			family = IPv4
		}
		s := layoutOf(family)
		i := &tableInfo{hooks: 1<<unix.NF_INET_LOCAL_IN | 1<<unix.NF_INET_LOCAL_OUT}
		i.entry[unix.NF_INET_LOCAL_IN], i.entry[unix.NF_INET_LOCAL_OUT] = hook, other
		_ = s.drops(entries, other)
		counts, err := s.counts(entries, i)
		rules := 0
		for _, of := range counts {
			rules += 1 + len(of)
		}
		if rules*(s.size+targetData) > len(entries) || err != nil && counts != nil {
			t.Fatalf("%d rules in %d bytes: %v", rules, len(entries), err)
		}
	})
}
