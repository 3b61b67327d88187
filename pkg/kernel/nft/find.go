package nft

import (
	"bytes"
	"context"
	"errors"
	"iter"

	"golang.org/x/sys/unix"
)

// findGroup is how many keys one request of Find holds: the kernel answers with a message for each.
const findGroup = 100

// Find is part of [Table].
func (t *kernelTable) Find(ctx context.Context, set string, keys iter.Seq[[]byte]) iter.Seq2[Element, error] {
	return func(yield func(Element, error) bool) {
		fail := func(err error) { yield(Element{}, wrap("read elements of "+set, t.family, t.name, err)) }
		give := func(group [][]byte) bool {
			found, err := t.find(ctx, set, group)
			for _, b := range found {
				e, err := decodeElement(b)
				if err != nil {
					fail(err)
					return false
				}
				if !yield(e, nil) {
					return false
				}
			}
			if err != nil {
				fail(err)
			}
			return err == nil
		}
		group := make([][]byte, 0, findGroup)
		for key := range keys {
			if group = append(group, bytes.Clone(key)); len(group) == findGroup {
				if !give(group) {
					return
				}
				group = group[:0]
			}
		}
		give(group)
	}
}

// find reads the elements of some keys.
func (t *kernelTable) find(ctx context.Context, set string, keys [][]byte) ([][]byte, error) {
	var found [][]byte
	_, err := t.socket.do(ctx, func() error {
		rest := keys
		var all [][]byte
		if len(keys) == 0 && !t.exists(set) {
			return unix.ENOENT
		}
		for len(rest) > 0 {
			n := len(all)
			err := t.socket.get(unix.NFT_MSG_GETSETELEM, familyNumber(t.family), func(b []byte) []byte {
				return appendKeys(b, t.name, set, rest)
			}, func(m message) error {
				list, _ := attr(m.attrs(), unix.NFTA_SET_ELEM_LIST_ELEMENTS)
				element, _ := attr(list, unix.NFTA_LIST_ELEM)
				all = append(all, bytes.Clone(element))
				return nil
			})
			rest = rest[min(len(all)-n, len(rest)):]
			if errors.Is(err, unix.ENOENT) && len(rest) > 0 && t.exists(set) {
				rest = rest[1:] // the kernel stops at the first key that it does not have
				continue
			}
			if err != nil {
				return err
			}
		}
		found = all
		return nil
	})
	return found, err
}

// exists tells whether there is such a set: the kernel has the same number for a missing set and a missing element.
func (t *kernelTable) exists(set string) bool {
	found := false
	err := t.socket.get(unix.NFT_MSG_GETSET, familyNumber(t.family), func(b []byte) []byte {
		b = appendString(b, unix.NFTA_SET_TABLE, t.name)
		return appendString(b, unix.NFTA_SET_NAME, set)
	}, func(message) error {
		found = true
		return nil
	})
	return err == nil && found
}

// appendKeys appends the attributes of a request for elements.
func appendKeys(b []byte, table, set string, keys [][]byte) []byte {
	b = appendString(b, unix.NFTA_SET_ELEM_LIST_TABLE, table)
	b = appendString(b, unix.NFTA_SET_ELEM_LIST_SET, set)
	b, list := beginNest(b, unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	for _, key := range keys {
		var elem int
		b, elem = beginNest(b, unix.NFTA_LIST_ELEM)
		b = appendData(b, unix.NFTA_SET_ELEM_KEY, key)
		endNest(b, elem)
	}
	endNest(b, list)
	return b
}

// describeKey prints a key for an error, as nft would if the set can be asked for its type.
func (t *kernelTable) describeKey(set string, key []byte) string {
	var typ uint32
	err := t.socket.get(unix.NFT_MSG_GETSET, familyNumber(t.family), func(b []byte) []byte {
		b = appendString(b, unix.NFTA_SET_TABLE, t.name)
		return appendString(b, unix.NFTA_SET_NAME, set)
	}, func(m message) error {
		for a := (attrs{rest: m.attrs()}); a.next(); {
			if a.typ == unix.NFTA_SET_KEY_TYPE {
				typ = a.u32()
			}
		}
		return nil
	})
	if err != nil {
		return formatFields(nil, key)
	}
	fs, _ := fieldsOfType(typ)
	return formatFields(fs, key)
}
