package nft

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"golang.org/x/sys/unix"
)

// Generation is part of [Table].
func (t *kernelTable) Generation(ctx context.Context) (Generation, error) {
	var g Generation
	_, err := t.socket.do(ctx, func() error {
		n, err := t.socket.generation()
		g = n
		return err
	})
	if err != nil {
		return 0, wrap("read the generation", t.family, t.name, err)
	}
	return g, nil
}

func (s *socket) generation() (g Generation, _ error) {
	err := s.get(unix.NFT_MSG_GETGEN, unix.AF_UNSPEC, nil, func(m message) error {
		for a := (attrs{rest: m.attrs()}); a.next(); {
			if a.typ == unix.NFTA_GEN_ID {
				g = Generation(a.u32())
			}
		}
		return nil
	})
	return g, err
}

// consistent runs read, which makes several requests, until no transaction comes in between.
func (s *socket) consistent(ctx context.Context, read func() error) error {
	return undisturbed(ctx, func() error {
		before, err := s.generation()
		if err != nil {
			return err
		}
		if err := read(); err != nil {
			return err
		}
		after, err := s.generation()
		if err == nil && before != after {
			err = errDumpInterrupted
		}
		return err
	})
}

// Objects is part of [Table].
func (t *kernelTable) Objects(ctx context.Context) (Objects, error) {
	var found Objects
	_, err := t.socket.do(ctx, func() error {
		var o Objects
		err := t.socket.consistent(ctx, func() (err error) {
			o, err = t.objects()
			return err
		})
		found = o
		return err
	})
	if err != nil {
		return Objects{}, wrap("list the table's objects", t.family, t.name, err)
	}
	return found, nil
}

func (t *kernelTable) objects() (o Objects, _ error) {
	err := t.get(unix.NFT_MSG_GETTABLE, unix.NFTA_TABLE_NAME, func(m message) error {
		o.Exists = true
		for a := (attrs{rest: m.attrs()}); a.next(); {
			if a.typ == nftaTableHandle {
				o.Handle = a.u64()
			}
		}
		return nil
	})
	if errors.Is(err, unix.ENOENT) {
		return Objects{}, nil
	}
	if err != nil {
		return Objects{}, err
	}
	err = t.dump(unix.NFT_MSG_GETCHAIN, unix.NFTA_CHAIN_TABLE, func(m message) error {
		if attrString(m, unix.NFTA_CHAIN_TABLE) == t.name {
			o.Chains = append(o.Chains, decodeChain(m))
		}
		return nil
	})
	if err != nil {
		return Objects{}, err
	}
	err = t.dump(unix.NFT_MSG_GETSET, unix.NFTA_SET_TABLE, func(m message) error {
		if attrString(m, unix.NFTA_SET_TABLE) == t.name {
			if set, anonymous := decodeSet(m); !anonymous {
				o.Sets = append(o.Sets, set)
			}
		}
		return nil
	})
	return o, err
}

// get makes a request about the table.
func (t *kernelTable) get(command int, tableAttr uint16, answer func(message) error) error {
	return t.socket.get(command, familyNumber(t.family), func(b []byte) []byte {
		return appendString(b, tableAttr, t.name)
	}, answer)
}

// dump requests all objects of a kind in the table. Not all kernels heed the table.
func (t *kernelTable) dump(command int, tableAttr uint16, answer func(message) error) error {
	return t.socket.dump(command, familyNumber(t.family), func(b []byte) []byte {
		return appendString(b, tableAttr, t.name)
	}, answer)
}

func decodeChain(m message) (c Chain) {
	for a := (attrs{rest: m.attrs()}); a.next(); {
		switch a.typ {
		case unix.NFTA_CHAIN_NAME:
			c.Name = a.str()
		case unix.NFTA_CHAIN_HANDLE:
			c.Handle = a.u64()
		case unix.NFTA_CHAIN_TYPE:
			c.Type = a.str()
		case nftaChainUserdata:
			c.Comment = commentOf(a.data)
		case unix.NFTA_CHAIN_HOOK:
			for h := (attrs{rest: a.data}); h.next(); {
				switch h.typ {
				case unix.NFTA_HOOK_HOOKNUM:
					c.Hook = h.u32()
				case unix.NFTA_HOOK_PRIORITY:
					c.Priority = int32(h.u32())
				}
			}
		}
	}
	return c
}

func decodeSet(m message) (s Set, anonymous bool) {
	s.Count = -1
	for a := (attrs{rest: m.attrs()}); a.next(); {
		switch a.typ {
		case unix.NFTA_SET_NAME:
			s.Name = a.str()
		case nftaSetHandle:
			s.Handle = a.u64()
		case unix.NFTA_SET_FLAGS:
			s.Map = a.u32()&unix.NFT_SET_MAP != 0
			anonymous = a.u32()&unix.NFT_SET_ANONYMOUS != 0
		case nftaSetCount:
			s.Count = int(a.u32())
		}
	}
	return s, anonymous
}

// commentOf finds the comment in an object's user data: a list of type, length and value.
func commentOf(udata []byte) string {
	for len(udata) >= 2 && len(udata) >= 2+int(udata[1]) {
		value := udata[2 : 2+int(udata[1])]
		if udata[0] == udataComment {
			return string(trimNUL(value))
		}
		udata = udata[2+len(value):]
	}
	return ""
}

// Elements is part of [Table].
//
// All is read before the first element is given, since a transaction in between makes the kernel's answer useless.
func (t *kernelTable) Elements(ctx context.Context, set string) iter.Seq2[Element, error] {
	return func(yield func(Element, error) bool) {
		var lists [][]byte
		_, err := t.socket.do(ctx, func() error {
			found, err := t.elements(ctx, set)
			lists = found
			return err
		})
		if err != nil {
			yield(Element{}, wrap("read the elements of "+set, t.family, t.name, err))
			return
		}
		for _, list := range lists {
			a := attrs{rest: list}
			for a.next() {
				e, err := decodeElement(a.data)
				if err != nil {
					yield(Element{}, wrap("read the elements of "+set, t.family, t.name, err))
					return
				}
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

// elements reads the lists of elements of a set, a list for each message.
func (t *kernelTable) elements(ctx context.Context, set string) (lists [][]byte, _ error) {
	err := undisturbed(ctx, func() error {
		lists = nil
		return t.socket.dump(unix.NFT_MSG_GETSETELEM, familyNumber(t.family), func(b []byte) []byte {
			b = appendString(b, unix.NFTA_SET_ELEM_LIST_TABLE, t.name)
			return appendString(b, unix.NFTA_SET_ELEM_LIST_SET, set)
		}, func(m message) error {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("read %d messages: %w", len(lists), context.Cause(ctx))
			}
			list, _ := attr(m.attrs(), unix.NFTA_SET_ELEM_LIST_ELEMENTS)
			lists = append(lists, append([]byte(nil), list...))
			return nil
		})
	})
	return lists, err
}

// decodeElement decodes what NFTA_LIST_ELEM holds. The result's Key and Value are parts of it.
func decodeElement(b []byte) (e Element, _ error) {
	a := attrs{rest: b}
	for a.next() {
		switch a.typ {
		case unix.NFTA_SET_ELEM_KEY:
			e.Key, _ = attr(a.data, unix.NFTA_DATA_VALUE)
		case unix.NFTA_SET_ELEM_DATA:
			for d := (attrs{rest: a.data}); d.next(); {
				switch d.typ {
				case unix.NFTA_DATA_VALUE:
					e.Value = d.data
				case unix.NFTA_DATA_VERDICT:
					chain, _ := attr(d.data, unix.NFTA_VERDICT_CHAIN)
					e.Chain = string(trimNUL(chain))
				}
			}
		case unix.NFTA_SET_ELEM_USERDATA:
			e.Comment = commentOf(a.data)
		case unix.NFTA_SET_ELEM_EXPR:
			decodeCounter(a.data, &e)
		case nftaSetElemExprs:
			for x := (attrs{rest: a.data}); x.next(); {
				decodeCounter(x.data, &e)
			}
		}
	}
	if a.bad || e.Key == nil {
		return Element{}, fmt.Errorf("an element: %w", errMalformed)
	}
	return e, nil
}

// decodeCounter takes a counter expression's numbers.
func decodeCounter(expr []byte, e *Element) {
	if name, _ := attr(expr, unix.NFTA_EXPR_NAME); string(trimNUL(name)) != "counter" {
		return
	}
	data, _ := attr(expr, unix.NFTA_EXPR_DATA)
	for c := (attrs{rest: data}); c.next(); {
		switch c.typ {
		case unix.NFTA_COUNTER_PACKETS:
			e.Packets = c.u64()
		case unix.NFTA_COUNTER_BYTES:
			e.Bytes = c.u64()
		}
	}
}
