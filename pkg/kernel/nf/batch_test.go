package nf

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// operation is one operation on an element in a batch.
type operation struct {
	Add     bool
	Set     string
	Element Element
}

const testTable = "kube-proxy"

// frontendKey is `10.96.x.y . tcp . 80`, and slotKey the same with a slot.
func frontendKey(i int) []byte {
	return []byte{10, 96, byte(i >> 8), byte(i), unix.IPPROTO_TCP, 0, 0, 0, 0, 80, 0, 0}
}

func slotKey(i, slot int) []byte {
	return binary.NativeEndian.AppendUint32(frontendKey(i), uint32(slot))
}

// endpointValue is `10.0.x.y . 8080`.
func endpointValue(i int) []byte {
	return []byte{10, 0, byte(i >> 8), byte(i), 0x1f, 0x90, 0, 0}
}

// elementsOf returns the elements that a message holds.
func elementsOf(m netlink.Message) (elements [][]byte) {
	for a := netlink.ReadAttrs(m.Attr(unix.NFTA_SET_ELEM_LIST_ELEMENTS)); a.Next(); {
		elements = append(elements, a.Data)
	}
	return elements
}

// decodeBatch reads a batch's operations on elements from its bytes.
func decodeBatch(t *testing.T, data []byte) (ops []operation) {
	t.Helper()
	m := netlink.ReadMessages(data)
	for m.Next() {
		if c := CommandOf(m.Message); c != unix.NFT_MSG_NEWSETELEM && c != unix.NFT_MSG_DELSETELEM {
			continue
		}
		if table := m.AttrString(unix.NFTA_SET_ELEM_LIST_TABLE); table != testTable {
			t.Fatalf("a message is about table %q", table)
		}
		for _, element := range elementsOf(m.Message) {
			e, err := DecodeElement(element)
			if err != nil {
				t.Fatal(err)
			}
			ops = append(ops, operation{
				Add: CommandOf(m.Message) == unix.NFT_MSG_NEWSETELEM, Set: m.AttrString(unix.NFTA_SET_ELEM_LIST_SET), Element: e,
			})
		}
	}
	if m.Malformed() {
		t.Fatal("the batch is malformed")
	}
	return ops
}

// FuzzBatch encodes operations made from arbitrary bytes, and decodes them.
func FuzzBatch(f *testing.F) {
	f.Add([]byte("\x01\x03\x04abcdefghijklmnopqrstuvwxyz"))
	f.Add(bytes.Repeat([]byte{0, 1, 2, 3, 255, 64, 7}, 60))
	f.Fuzz(func(t *testing.T, data []byte) {
		take := func(n int) []byte {
			n = min(n, len(data))
			out := data[:n:n]
			data = data[n:]
			return out
		}
		b := NewBatch(IPv4, testTable, 0)
		var want []operation
		for len(data) > 4 {
			head := take(4)
			op := operation{
				Add: head[0]&1 == 1, Set: []string{"services", "endpoints", "a"}[head[0]>>1%3],
				Element: Element{Key: take(1 + int(head[1])%maxDataLen)},
			}
			if len(op.Element.Key) == 0 {
				break
			}
			if !op.Add {
				b.Delete(op.Set, op.Element.Key)
				want = append(want, op)
				continue
			}
			switch head[2] % 3 {
			case 0:
				if v := take(int(head[2]) % (maxDataLen + 1)); len(v) > 0 {
					op.Element.Value = v
				}
			case 1:
				op.Element.Chain = "pick-" + strings.Repeat("1", int(head[2])%200)
			}
			op.Element.Comment = strings.ReplaceAll(string(take(int(head[3]))), "\x00", "0")
			b.Add(op.Set, &op.Element)
			op.Element.Comment = CutComment(op.Element.Comment)
			want = append(want, op)
		}
		sent, _ := b.finish(1)
		if b.err != nil {
			t.Fatal(b.err)
		}
		if got := decodeBatch(t, sent); !reflect.DeepEqual(got, want) { // cmp is too slow for fuzzing
			t.Error(gocmp.Diff(want, got))
		}
		if b.Len() != len(want) {
			t.Errorf("Len is %d, want %d", b.Len(), len(want))
		}
	})
}

// FuzzDecode gives the decoders arbitrary bytes: they must return and not panic.
func FuzzDecode(f *testing.F) {
	b := NewBatch(IPv4, testTable, 0)
	b.Add("services", &Element{Key: frontendKey(1), Chain: "pick-2", Comment: "default/a:http"})
	sent, _ := b.finish(1)
	f.Add(sent)
	f.Fuzz(func(_ *testing.T, data []byte) {
		for m := netlink.ReadMessages(data); m.Next(); {
			DecodeChain(m.Message)
			decodeSet(m.Message)
			m.Result()
			ReadGeneration(m.Message)
			decodeNamedCounter(m.Message)
			for a := m.Attrs(); a.Next(); {
				Counts(a.Data)
				digest{sha256.New()}.expressions(a.Nested(), nil)
				_, _ = DecodeElement(a.Data)
				CommentOf(a.Data)
			}
		}
		_, _ = DecodeElement(data)
		CommentOf(data)
	})
}

// TestBatchAllocatesNothing fills a batch that has been filled before.
func TestBatchAllocatesNothing(t *testing.T) {
	b := NewBatch(IPv4, testTable, 0)
	endpoint := &Element{Key: slotKey(1, 0), Value: endpointValue(1)}
	service := &Element{Key: frontendKey(1), Chain: "pick-2", Comment: strings.Repeat("default/some-service:http ", 10)}
	fill := func() {
		b.Reset()
		for i := range 5000 {
			binary.NativeEndian.PutUint32(endpoint.Key[12:], uint32(i))
			b.Add("endpoints", endpoint)
			b.Delete("endpoints", endpoint.Key)
			b.Add("services", service)
		}
		b.finish(1)
	}
	fill()
	if n := testing.AllocsPerRun(10, fill); n != 0 {
		t.Errorf("a batch of 15,000 operations made %v allocations", n)
	}
}

// TestBatchMessages checks which operations share a message.
func TestBatchMessages(t *testing.T) {
	b := NewBatch(IPv6, testTable, 0)
	for i := range 3000 {
		b.Add("endpoints", &Element{Key: slotKey(i, 0), Value: endpointValue(i)})
	}
	b.Delete("endpoints", slotKey(1, 0))
	b.Add("endpoints", &Element{Key: slotKey(1, 0), Value: endpointValue(1)})
	b.Add("services", &Element{Key: frontendKey(1), Chain: "pick-1"})
	data, lastSeq := b.finish(100)
	type sent struct {
		Command, Operations int
		Flags               uint16
	}
	var got []sent
	seq, last := uint32(100), 0
	for m := netlink.ReadMessages(data); m.Next(); seq++ {
		if m.Seq != seq {
			t.Errorf("message %d has number %d", seq, m.Seq)
		}
		if size := m.Offset - last; size > maxMessageLen+200 {
			t.Errorf("message %d has %d bytes", seq-1, size)
		}
		last = m.Offset
		if CommandOf(m.Message) >= 0 {
			got = append(got, sent{CommandOf(m.Message), len(elementsOf(m.Message)), m.Flags})
			if m.Family != unix.NFPROTO_IPV6 {
				t.Errorf("message %d is of family %d", seq, m.Family)
			}
		} else if m.Resource != unix.NFNL_SUBSYS_NFTABLES {
			t.Errorf("message %d, the beginning or the end, is for subsystem %d", seq, m.Resource)
		}
	}
	const add = unix.NLM_F_REQUEST | unix.NLM_F_CREATE | unix.NLM_F_EXCL
	want := []sent{
		// An element with a key of 16 bytes and a value of 8 takes 44 bytes.
		{unix.NFT_MSG_NEWSETELEM, 1363, add}, {unix.NFT_MSG_NEWSETELEM, 1363, add}, {unix.NFT_MSG_NEWSETELEM, 274, add},
		{unix.NFT_MSG_DELSETELEM, 1, unix.NLM_F_REQUEST}, {unix.NFT_MSG_NEWSETELEM, 1, add},
		{unix.NFT_MSG_NEWSETELEM, 1, add | unix.NLM_F_ACK},
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if lastSeq != seq-2 {
		t.Errorf("the last operation has number %d; the batch's end has %d", lastSeq, seq-1)
	}
	// Operations can be added after the batch was sent.
	b.Add("services", &Element{Key: frontendKey(2), Chain: "pick-1"})
	if n := len(decodeBatch(t, b.buf)); n != b.Len() || n != 3004 {
		t.Errorf("the batch has %d operations and says %d; want 3004", n, b.Len())
	}
	b.Reset()
	if n := len(decodeBatch(t, b.buf)); n != 0 || b.Len() != 0 {
		t.Errorf("after Reset the batch has %d operations and says %d", n, b.Len())
	}
}

// TestBatchRefuses checks that an operation that cannot be encoded gives an error, and that nothing is sent.
func TestBatchRefuses(t *testing.T) {
	long := strings.Repeat("x", 256)
	for name, f := range map[string]func(b *Batch){
		"no set":            func(b *Batch) { b.Delete("", frontendKey(1)) },
		"long set":          func(b *Batch) { b.Delete(long, frontendKey(1)) },
		"no key":            func(b *Batch) { b.Add("services", &Element{Chain: "pick-1"}) },
		"long key":          func(b *Batch) { b.Add("services", &Element{Key: make([]byte, 65)}) },
		"long value":        func(b *Batch) { b.Add("services", &Element{Key: frontendKey(1), Value: make([]byte, 65)}) },
		"value and verdict": func(b *Batch) { b.Add("services", &Element{Key: frontendKey(1), Value: frontendKey(1), Chain: "a"}) },
		"long chain to go":  func(b *Batch) { b.Add("services", &Element{Key: frontendKey(1), Chain: long}) },
		"no chain":          func(b *Batch) { b.AddChain(Chain{}) },
		"long chain":        func(b *Batch) { b.DeleteChain(long) },
		"rule of no chain":  func(b *Batch) { b.AddRule("", AppendImmediate(nil, Return, ""), 0) },
		"empty rule":        func(b *Batch) { b.AddRule("a", nil, 0) },
		"flush of no chain": func(b *Batch) { b.FlushChain("") },
	} {
		t.Run(name, func(t *testing.T) {
			b := NewBatch(IPv4, testTable, 0)
			b.Add("services", &Element{Key: frontendKey(1), Chain: "pick-1"})
			f(b)
			if b.Len() != 2 {
				t.Errorf("Len is %d", b.Len())
			}
			var closed Conn // sending would panic
			if err := closed.Commit(t.Context(), b); err == nil || !strings.HasPrefix(err.Error(), "nftables: cannot ") {
				t.Errorf("Commit's error is %v", err)
			}
			b.Reset()
			if err := closed.Commit(t.Context(), b); err != nil {
				t.Errorf("after Reset: %v", err)
			}
		})
	}
}

// TestCutComment checks that comments are cut between characters.
func TestCutComment(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{strings.Repeat("a", 127), strings.Repeat("a", 127)},
		{strings.Repeat("a", 128), strings.Repeat("a", 127)},
		{strings.Repeat("é", 64), strings.Repeat("é", 63)},
		{strings.Repeat("a", 125) + "語", strings.Repeat("a", 125)},
	} {
		got := CutComment(c.in)
		if got != c.want || !utf8.ValidString(got) {
			t.Errorf("%q (%d bytes) became %q (%d bytes)", c.in, len(c.in), got, len(got))
		}
	}
}

// TestGenerationSince counts across 0, which the kernel skips.
func TestGenerationSince(t *testing.T) {
	for _, c := range []struct {
		later, earlier Generation
		want           uint32
	}{{5, 5, 0}, {6, 5, 1}, {1, 0xffffffff, 1}, {3, 0xfffffffe, 4}} {
		if got := c.later.Since(c.earlier); got != c.want {
			t.Errorf("%d since %d is %d, want %d", c.later, c.earlier, got, c.want)
		}
	}
}
