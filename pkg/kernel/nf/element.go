package nf

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// Element is one element of a set or map.
type Element struct {
	// Key is the raw key. A concatenation's fields are each padded with zeros to 4 bytes, and in network order except
	// those that netfilter keeps as the host's integers (numgen's number, marks, interface indices). An element that another
	// program added for all other keys has an empty one.
	Key []byte
	// Value is a data map's raw value, laid out as Key is; nil in sets and verdict maps.
	Value []byte
	// Chain is the chain that a verdict map's element goes to (`goto`); "" elsewhere.
	Chain string
	// Comment is shown by `nft list`. Longer ones are cut to 127 bytes, between two characters.
	Comment string
	// Packets and Bytes are the element's counter, if its map counts. Ignored when writing.
	Packets, Bytes uint64
	// Foreign means that the element does more than one that is written from this struct: it has another verdict, or an expression that is
	// no counter. Ignored when writing.
	Foreign bool
}

// Elements reads all elements of a set or map, in no order. An error ends the sequence; it is ENOENT if there is no such set. Key and
// Value are parts of a larger buffer: clone what you keep for long.
//
// The kernel's time for it grows with the square of the set's size: seconds for 250,000 elements.
//
// It reads everything before it yields the first element, because a transaction in between can make the kernel's answer
// useless.
func (t *Table) Elements(ctx context.Context, set string) iter.Seq2[Element, error] {
	return func(yield func(Element, error) bool) {
		var lists [][]byte
		_, err := t.Do(ctx, func() (err error) {
			lists, err = t.snapshot(ctx, set)
			return err
		})
		if err != nil {
			yield(Element{}, t.wrap("read the elements of "+set, err))
			return
		}
		for _, list := range lists {
			if !t.yield(set, list, yield) {
				return
			}
		}
	}
}

// yield yields a list of a set's elements, and returns false if the caller wants no more.
func (t *Table) yield(set string, list []byte, yield func(Element, error) bool) bool {
	for a := netlink.ReadAttrs(list); a.Next(); {
		e, err := DecodeElement(a.Data)
		if !yield(e, t.wrap("read elements of "+set, err)) || err != nil {
			return false
		}
	}
	return true
}

// snapshot reads the lists of elements of a set until each element is there once. Transactions in between do not matter: on some machines
// others never pause for as long as the dump of a large set takes. What they write elsewhere does not change this set, and what they write
// into it a [Watch] reports. A set that packets fill is dumped once: it changes at any time anyway.
func (t *Table) snapshot(ctx context.Context, set string) (lists [][]byte, _ error) {
	err := netlink.Retry(ctx, func() (err error) {
		lists, err = t.elements(ctx, set)
		if err != nil && (!errors.Is(err, netlink.ErrInterrupted) || errors.Is(err, unix.EINTR)) {
			return err // the dump is not complete
		}
		declared, err := t.getSet(set)
		if err != nil || declared.flags&(unix.NFT_SET_TIMEOUT|unix.NFT_SET_EVAL) != 0 {
			return err
		}
		return declared.checkComplete(lists)
	})
	return lists, err
}

// elements reads the lists of elements of a set, a list for each message.
func (t *Table) elements(ctx context.Context, set string) (lists [][]byte, _ error) {
	err := t.Dump(t.query(unix.NFT_MSG_GETSETELEM, set), func(m netlink.Message) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		lists = append(lists, bytes.Clone(m.Attr(unix.NFTA_SET_ELEM_LIST_ELEMENTS)))
		return nil
	})
	return lists, err
}

// checkComplete returns an error if a dump does not hold each element once. For each chunk of a dump the kernel walks the
// hash table again and skips as many elements as it has sent already; while it grows or shrinks the table, for some
// milliseconds after many elements were added or removed, their order changes.
func (set *declaration) checkComplete(lists [][]byte) error {
	if set.flags&unix.NFT_SET_INTERVAL != 0 {
		return nil // not a hash table
	}
	seed := maphash.MakeSeed()
	keys := make([]uint64, 0, max(0, set.Count))
	for _, list := range lists {
		for a := netlink.ReadAttrs(list); a.Next(); {
			if key := netlink.Attr(a.Data, unix.NFTA_SET_ELEM_KEY); key != nil { // the kernel does not count a catch-all element
				keys = append(keys, maphash.Bytes(seed, key))
			}
		}
	}
	read := len(keys)
	slices.Sort(keys)
	if distinct := len(slices.Compact(keys)); distinct != read || set.Count >= 0 && set.Count != read {
		return fmt.Errorf("%w: read %d elements, %d of them distinct", netlink.ErrInterrupted, read, distinct)
	}
	return nil
}

// getSet reads a set's declaration.
func (t *Table) getSet(name string) (found declaration, _ error) {
	err := t.Get(t.query(unix.NFT_MSG_GETSET, name), func(m netlink.Message) error {
		found = decodeSet(m)
		return nil
	})
	return found, err
}

// setElemCatchall is NFT_SET_ELEM_CATCHALL: the element has no key, and stands for all keys that the set does not have.
const setElemCatchall = 0x2

// DecodeElement decodes what NFTA_LIST_ELEM holds. The result's Key and Value are parts of it.
func DecodeElement(b []byte) (e Element, _ error) {
	a := netlink.ReadAttrs(b)
	for a.Next() {
		switch a.Type {
		case unix.NFTA_SET_ELEM_FLAGS:
			if len(a.Data) == 4 && binary.BigEndian.Uint32(a.Data)&setElemCatchall != 0 {
				e.Key = []byte{}
			}
		case unix.NFTA_SET_ELEM_KEY:
			e.Key = netlink.Attr(a.Data, unix.NFTA_DATA_VALUE)
		case unix.NFTA_SET_ELEM_DATA:
			for d := a.Nested(); d.Next(); {
				switch d.Type {
				case unix.NFTA_DATA_VALUE:
					e.Value = d.Data
				case unix.NFTA_DATA_VERDICT:
					e.Chain = netlink.String(netlink.Attr(d.Data, unix.NFTA_VERDICT_CHAIN))
					e.Foreign = !isGoto(netlink.Attr(d.Data, unix.NFTA_VERDICT_CODE))
				}
			}
		case unix.NFTA_SET_ELEM_USERDATA:
			e.Comment = CommentOf(a.Data)
		case unix.NFTA_SET_ELEM_EXPR:
			e.count(a.Data)
		case nftaSetElemExprs:
			for x := a.Nested(); x.Next(); {
				e.count(x.Data)
			}
		}
	}
	if a.Malformed() || e.Key == nil {
		return Element{}, fmt.Errorf("an element: %w", netlink.ErrMalformed)
	}
	return e, nil
}

// KeyOf returns the key in what NFTA_LIST_ELEM holds; nil if there is none.
func KeyOf(b []byte) []byte {
	return netlink.Attr(netlink.Attr(b, unix.NFTA_SET_ELEM_KEY), unix.NFTA_DATA_VALUE)
}

// count decodes an expression of the element, which should be a counter.
func (e *Element) count(expression []byte) {
	if packets, octets, ok := Counts(expression); ok {
		e.Packets, e.Bytes = packets, octets
	} else {
		e.Foreign = true
	}
}

// isGoto reports whether an attribute's data is the code of goto.
func isGoto(code []byte) bool {
	return len(code) == 4 && Verdict(binary.BigEndian.Uint32(code)) == Goto
}

// beginElement appends the beginning of an element, with its key; an empty one is that of a catch-all element. It returns where that
// is, for EndNest.
func beginElement(b, key []byte) (_ []byte, elem int) {
	b, elem = netlink.BeginNest(b, unix.NFTA_LIST_ELEM)
	if len(key) == 0 {
		return netlink.AppendUint32(b, unix.NFTA_SET_ELEM_FLAGS, setElemCatchall), elem
	}
	return AppendData(b, unix.NFTA_SET_ELEM_KEY, key), elem
}
