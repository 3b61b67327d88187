package nft

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"slices"
	"time"

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

// consistent runs read until no transaction comes in between.
func (s *socket) consistent(ctx context.Context, read func() error) error {
	return again(ctx, func() error { return s.quiet(read) })
}

// quiet runs read, and returns errInterrupted if a transaction came in between.
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
		err = errInterrupted
	}
	return err
}

// again makes attempts until one is not interrupted.
func again(ctx context.Context, attempt func() error) error {
	for n := range readAttempts {
		if n > 0 && !sleep(ctx, readPause<<n) {
			return context.Cause(ctx)
		}
		if err := attempt(); !errors.Is(err, errInterrupted) && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	return fmt.Errorf("%w, %d times in a row: try later", errInterrupted, readAttempts)
}

// sleep waits, and returns false if ctx ends.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
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
			if set, flags := decodeSet(m); flags&unix.NFT_SET_ANONYMOUS == 0 {
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

func decodeSet(m message) (s Set, flags uint32) {
	s.Count = -1
	for a := (attrs{rest: m.attrs()}); a.next(); {
		switch a.typ {
		case unix.NFTA_SET_NAME:
			s.Name = a.str()
		case nftaSetHandle:
			s.Handle = a.u64()
		case unix.NFTA_SET_FLAGS:
			flags = a.u32()
			s.Map = flags&unix.NFT_SET_MAP != 0
		case nftaSetCount:
			s.Count = int(a.u32())
		}
	}
	return s, flags
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
// All is read before the first element is given, since a transaction in between can make the kernel's answer useless.
func (t *kernelTable) Elements(ctx context.Context, set string) iter.Seq2[Element, error] {
	return func(yield func(Element, error) bool) {
		var lists [][]byte
		_, err := t.socket.do(ctx, func() (err error) {
			lists, err = t.ofOneMoment(ctx, set)
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

// ofOneMoment reads the lists of elements of a set until no transaction comes in between, or until two whole dumps say
// the same. For others may never be quiet for as long as the dump of a large set takes; but what they write elsewhere does
// not alter this set, and what they write into it makes the next dump differ.
func (t *kernelTable) ofOneMoment(ctx context.Context, set string) (lists [][]byte, _ error) {
	seed := maphash.MakeSeed()
	last := summary{count: -1}
	err := again(ctx, func() error {
		interrupted := t.socket.quiet(func() (err error) {
			lists, err = t.elements(ctx, set) // all of them, also if it returns errInterrupted
			return err
		})
		if interrupted != nil && !errors.Is(interrupted, errInterrupted) {
			return interrupted
		}
		if err := t.complete(set, lists); err != nil || interrupted == nil {
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

// summary is what a dump of a set says, but for the order and for what packets change.
type summary struct {
	count int
	sum   uint64
}

// summaryOf digests lists of elements.
func summaryOf(seed maphash.Seed, lists [][]byte) (s summary) {
	var h maphash.Hash
	h.SetSeed(seed)
	for _, list := range lists {
		for e := (attrs{rest: list}); e.next(); {
			h.Reset()
			for a := (attrs{rest: e.data}); a.next(); {
				switch a.typ {
				case unix.NFTA_SET_ELEM_KEY, nftaSetElemKeyEnd, unix.NFTA_SET_ELEM_FLAGS, unix.NFTA_SET_ELEM_DATA, unix.NFTA_SET_ELEM_USERDATA:
					maphash.WriteComparable(&h, [2]int{int(a.typ), len(a.data)})
					h.Write(a.data)
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
	err := t.socket.dump(unix.NFT_MSG_GETSETELEM, familyNumber(t.family), func(b []byte) []byte {
		b = appendString(b, unix.NFTA_SET_ELEM_LIST_TABLE, t.name)
		return appendString(b, unix.NFTA_SET_ELEM_LIST_SET, set)
	}, func(m message) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		list, _ := attr(m.attrs(), unix.NFTA_SET_ELEM_LIST_ELEMENTS)
		lists = append(lists, bytes.Clone(list))
		return nil
	})
	return lists, err
}

// complete refuses a dump that does not hold each element once. For each chunk of a dump the kernel walks the hash table
// anew and skips as many elements as it has told already; while it is growing or shrinking the table, for some
// milliseconds after many elements were added or removed, their order changes meanwhile.
func (t *kernelTable) complete(name string, lists [][]byte) error {
	m, err := t.getSet(name)
	if err != nil {
		return err
	}
	set, flags := decodeSet(m)
	if flags&(unix.NFT_SET_INTERVAL|unix.NFT_SET_TIMEOUT|unix.NFT_SET_EVAL) != 0 {
		return nil // no hash table; or one that packets change all the time
	}
	seed := maphash.MakeSeed()
	var keys []uint64
	for _, list := range lists {
		for a := (attrs{rest: list}); a.next(); {
			key, _ := attr(a.data, unix.NFTA_SET_ELEM_KEY)
			keys = append(keys, maphash.Bytes(seed, key))
		}
	}
	told := len(keys)
	slices.Sort(keys)
	if distinct := len(slices.Compact(keys)); distinct != told || set.Count >= 0 && set.Count != told {
		return fmt.Errorf("%w: read %d elements, of which %d differ", errInterrupted, told, distinct)
	}
	return nil
}

// getSet asks for a set's declaration.
func (t *kernelTable) getSet(name string) (found message, _ error) {
	err := t.socket.get(unix.NFT_MSG_GETSET, familyNumber(t.family), func(b []byte) []byte {
		b = appendString(b, unix.NFTA_SET_TABLE, t.name)
		return appendString(b, unix.NFTA_SET_NAME, name)
	}, func(m message) error {
		m.body = bytes.Clone(m.body)
		found = m
		return nil
	})
	return found, err
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
	e.Packets, e.Bytes = decodeCounts(data)
}
