package nft

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

// Generation is part of [Table].
func (t *kernelTable) Generation(ctx context.Context) (Generation, error) {
	var g Generation
	_, err := t.socket.Do(ctx, func() (err error) {
		g, err = t.socket.generation()
		return err
	})
	if err != nil {
		return 0, wrap("read the generation", t.family, t.name, err)
	}
	return g, nil
}

func (s *socket) generation() (g Generation, _ error) {
	err := s.Get(header(unix.NFT_MSG_GETGEN, 0, unix.AF_UNSPEC), nil, func(m netlink.Message) error {
		for a := m.Attrs(); a.Next(); {
			if a.Type == unix.NFTA_GEN_ID {
				g = Generation(a.Uint32())
			}
		}
		return nil
	})
	return g, err
}

// consistent returns the result of read, which it calls until no transaction comes in between.
func consistent[T any](ctx context.Context, t *kernelTable, op string, read func() (T, error)) (T, error) {
	var found T
	_, err := t.socket.Do(ctx, func() error {
		return netlink.Retry(ctx, func() error {
			return t.socket.quiet(func() (err error) {
				found, err = read()
				return err
			})
		})
	})
	if err != nil {
		var none T
		return none, wrap(op, t.family, t.name, err)
	}
	return found, nil
}

// quiet runs read, and returns netlink.ErrInterrupted if a transaction came in between.
func (s *socket) quiet(read func() error) error {
	before, err := s.generation()
	if err != nil {
		return err
	}
	if err := read(); err != nil {
		return err
	}
	after, err := s.generation()
	if err == nil && before != after {
		err = netlink.ErrInterrupted
	}
	return err
}

// Objects is part of [Table].
func (t *kernelTable) Objects(ctx context.Context) (Objects, error) {
	return consistent(ctx, t, "list the table's objects", t.objects)
}

func (t *kernelTable) objects() (o Objects, _ error) {
	err := t.get(unix.NFT_MSG_GETTABLE, unix.NFTA_TABLE_NAME, func(netlink.Message) error {
		o.Exists = true
		return nil
	})
	if errors.Is(err, unix.ENOENT) {
		return Objects{}, nil
	}
	if err != nil {
		return Objects{}, err
	}
	err = t.dump(unix.NFT_MSG_GETCHAIN, unix.NFTA_CHAIN_TABLE, func(m netlink.Message) error {
		o.Chains = append(o.Chains, decodeChain(m))
		return nil
	})
	if err != nil {
		return Objects{}, err
	}
	err = t.dump(unix.NFT_MSG_GETSET, unix.NFTA_SET_TABLE, func(m netlink.Message) error {
		if set := decodeSet(m); set.flags&unix.NFT_SET_ANONYMOUS == 0 {
			o.Sets = append(o.Sets, set.Set)
		}
		return nil
	})
	return o, err
}

// header is the header of a request about the table.
func (t *kernelTable) header(command int) netlink.Header {
	return header(command, 0, familyNumber(t.family))
}

// get makes a request about the table.
func (t *kernelTable) get(command int, tableAttr uint16, answer func(netlink.Message) error) error {
	return t.socket.Get(t.header(command), func(b []byte) []byte {
		return netlink.AppendString(b, tableAttr, t.name)
	}, answer)
}

// dump requests all objects of a kind in the table. Some kernels send those of other tables too: they are skipped.
func (t *kernelTable) dump(command int, tableAttr uint16, answer func(netlink.Message) error) error {
	return t.socket.Dump(t.header(command), func(b []byte) []byte {
		return netlink.AppendString(b, tableAttr, t.name)
	}, func(m netlink.Message) error {
		if m.AttrString(tableAttr) != t.name {
			return nil
		}
		return answer(m)
	})
}

func decodeChain(m netlink.Message) (c Chain) {
	for a := m.Attrs(); a.Next(); {
		switch a.Type {
		case unix.NFTA_CHAIN_NAME:
			c.Name = a.String()
		case unix.NFTA_CHAIN_TYPE:
			c.Type = a.String()
		case nftaChainUserdata:
			c.Comment = commentOf(a.Data)
		case unix.NFTA_CHAIN_HOOK:
			for h := a.Nested(); h.Next(); {
				switch h.Type {
				case unix.NFTA_HOOK_HOOKNUM:
					c.Hook = h.Uint32()
				case unix.NFTA_HOOK_PRIORITY:
					c.Priority = int32(h.Uint32())
				}
			}
		}
	}
	return c
}

// declaration is a set with what its declaration says.
type declaration struct {
	Set
	flags, keyType uint32 // NFT_SET_*, NFTA_SET_KEY_TYPE
}

func decodeSet(m netlink.Message) (s declaration) {
	s.Count = -1
	for a := m.Attrs(); a.Next(); {
		switch a.Type {
		case unix.NFTA_SET_NAME:
			s.Name = a.String()
		case unix.NFTA_SET_FLAGS:
			s.flags = a.Uint32()
			s.Map = s.flags&unix.NFT_SET_MAP != 0
		case unix.NFTA_SET_KEY_TYPE:
			s.keyType = a.Uint32()
		case nftaSetCount:
			s.Count = int(a.Uint32())
		}
	}
	return s
}

// commentOf finds the comment in an object's user data: a list of type, length and value.
func commentOf(udata []byte) string {
	for len(udata) >= 2 && len(udata) >= 2+int(udata[1]) {
		value := udata[2 : 2+int(udata[1])]
		if udata[0] == udataComment {
			return netlink.String(value)
		}
		udata = udata[2+len(value):]
	}
	return ""
}

// Elements is part of [Table].
//
// It reads everything before it yields the first element, because a transaction in between can make the kernel's answer
// useless.
func (t *kernelTable) Elements(ctx context.Context, set string) iter.Seq2[Element, error] {
	return func(yield func(Element, error) bool) {
		var lists [][]byte
		_, err := t.socket.Do(ctx, func() (err error) {
			lists, err = t.snapshot(ctx, set)
			return err
		})
		if err != nil {
			yield(Element{}, wrap("read the elements of "+set, t.family, t.name, err))
			return
		}
		for _, list := range lists {
			if !t.yield(set, list, yield) {
				return
			}
		}
	}
}

// snapshot reads the lists of elements of a set until no transaction comes in between, or until two complete dumps are equal.
// The second is for machines on which others never pause for as long as the dump of a large set takes: what they write
// elsewhere does not change this set, and what they write into it makes the next dump differ. A set that packets fill is dumped
// once: it changes at any time anyway.
func (t *kernelTable) snapshot(ctx context.Context, set string) (lists [][]byte, _ error) {
	seed := maphash.MakeSeed()
	last := summary{count: -1}
	err := netlink.Retry(ctx, func() error {
		interrupted := t.socket.quiet(func() (err error) {
			lists, err = t.elements(ctx, set)
			return err
		})
		if interrupted != nil && (!errors.Is(interrupted, netlink.ErrInterrupted) || errors.Is(interrupted, unix.EINTR)) {
			return interrupted // the dump is not complete
		}
		declared, err := t.getSet(set)
		if err != nil || declared.flags&(unix.NFT_SET_TIMEOUT|unix.NFT_SET_EVAL) != 0 {
			return err
		}
		if err := declared.checkComplete(lists); err != nil || interrupted == nil {
			return err
		}
		before := last
		last = summaryOf(seed, lists)
		if last == before {
			return nil
		}
		return interrupted
	})
	return lists, err
}

// summary digests a dump of a set, regardless of the order and of what packets change.
type summary struct {
	count int
	sum   uint64
}

// summaryOf digests lists of elements.
func summaryOf(seed maphash.Seed, lists [][]byte) (s summary) {
	var h maphash.Hash
	h.SetSeed(seed)
	for _, list := range lists {
		for e := netlink.ReadAttrs(list); e.Next(); {
			h.Reset()
			for a := e.Nested(); a.Next(); {
				switch a.Type {
				case unix.NFTA_SET_ELEM_KEY, nftaSetElemKeyEnd, unix.NFTA_SET_ELEM_FLAGS, unix.NFTA_SET_ELEM_DATA, unix.NFTA_SET_ELEM_USERDATA:
					maphash.WriteComparable(&h, [2]int{int(a.Type), len(a.Data)})
					h.Write(a.Data)
				}
			}
			s.count++
			s.sum += h.Sum64()
		}
	}
	return s
}

// elements reads the lists of elements of a set, a list for each message.
func (t *kernelTable) elements(ctx context.Context, set string) (lists [][]byte, _ error) {
	err := t.socket.Dump(t.header(unix.NFT_MSG_GETSETELEM), func(b []byte) []byte {
		b = netlink.AppendString(b, unix.NFTA_SET_ELEM_LIST_TABLE, t.name)
		return netlink.AppendString(b, unix.NFTA_SET_ELEM_LIST_SET, set)
	}, func(m netlink.Message) error {
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
func (t *kernelTable) getSet(name string) (found declaration, _ error) {
	err := t.socket.Get(t.header(unix.NFT_MSG_GETSET), func(b []byte) []byte {
		b = netlink.AppendString(b, unix.NFTA_SET_TABLE, t.name)
		return netlink.AppendString(b, unix.NFTA_SET_NAME, name)
	}, func(m netlink.Message) error {
		found = decodeSet(m)
		return nil
	})
	return found, err
}

// setElemCatchall is NFT_SET_ELEM_CATCHALL: the element has no key, and stands for all keys that the set does not have.
const setElemCatchall = 0x2

// decodeElement decodes what NFTA_LIST_ELEM holds. The result's Key and Value are parts of it.
func decodeElement(b []byte) (e Element, _ error) {
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
				}
			}
		case unix.NFTA_SET_ELEM_USERDATA:
			e.Comment = commentOf(a.Data)
		case unix.NFTA_SET_ELEM_EXPR:
			decodeCounter(a.Data, &e)
		case nftaSetElemExprs:
			for x := a.Nested(); x.Next(); {
				decodeCounter(x.Data, &e)
			}
		}
	}
	if a.Malformed() || e.Key == nil {
		return Element{}, fmt.Errorf("an element: %w", netlink.ErrMalformed)
	}
	return e, nil
}

// decodeCounter decodes an expression into e if it is a counter.
func decodeCounter(expr []byte, e *Element) {
	if netlink.String(netlink.Attr(expr, unix.NFTA_EXPR_NAME)) == "counter" {
		e.Packets, e.Bytes = decodeCounts(netlink.Attr(expr, unix.NFTA_EXPR_DATA))
	}
}
