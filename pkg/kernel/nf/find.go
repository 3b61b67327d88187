package nf

import (
	"context"
	"errors"
	"iter"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// findGroup is the number of keys in one request of Find: the kernel answers with a message for each.
const findGroup = 100

// Find reads the elements that have the given keys, in the order of the keys, and skips missing keys. Its time grows with the number
// of keys only: 1 s for 250,000. Together with [Set.Count] it proves that a large set holds exactly what it should. Other
// transactions may come in between: compare Generation before and after.
func (t *Table) Find(ctx context.Context, set string, keys iter.Seq[[]byte]) iter.Seq2[Element, error] {
	return func(yield func(Element, error) bool) {
		n := 0
		var group []byte
		give := func() bool {
			found, err := t.find(ctx, set, group)
			if !t.yield(set, found, yield) {
				return false
			}
			if err != nil {
				yield(Element{}, t.wrap("read elements of "+set, err))
				return false
			}
			n, group = 0, nil // the kernel may still read the last request
			return true
		}
		for key := range keys {
			if group == nil {
				group = make([]byte, 0, findGroup*(netlink.AttrHeaderLen*3+netlink.Align(len(key))))
			}
			var elem int
			group, elem = beginElement(group, key)
			netlink.EndNest(group, elem)
			if n++; n == findGroup && !give() {
				return
			}
		}
		give()
	}
}

// find reads the elements of keys: both are lists of NFTA_LIST_ELEM.
func (t *Table) find(ctx context.Context, set string, keys []byte) ([]byte, error) {
	var found []byte // written after ctx ended, too
	_, err := t.Do(ctx, func() error {
		if len(keys) == 0 {
			_, err := t.getSet(set)
			return err
		}
		all := make([]byte, 0, 2*len(keys))
		rest := netlink.ReadAttrs(keys)
		for len(rest.Rest()) > 0 {
			q := t.query(unix.NFT_MSG_GETSETELEM, set)
			q.More = netlink.AppendBytes(nil, unix.NFTA_SET_ELEM_LIST_ELEMENTS|unix.NLA_F_NESTED, rest.Rest())
			err := t.Get(q, func(m netlink.Message) error {
				all = append(all, m.Attr(unix.NFTA_SET_ELEM_LIST_ELEMENTS)...)
				rest.Next()
				return nil
			})
			// The kernel stops at the first missing key, with the same error as for a missing set.
			if errors.Is(err, unix.ENOENT) && t.exists(set) {
				rest.Next()
				err = nil
			}
			if err != nil {
				return err
			}
		}
		found = all
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// exists reports whether a set exists.
func (t *Table) exists(set string) bool {
	_, err := t.getSet(set)
	return err == nil
}

// KeyType returns the number by which nft remembers the data type of a set's keys (NFTA_SET_KEY_TYPE).
func (t *Table) KeyType(set string) (uint32, error) {
	found, err := t.getSet(set)
	return found.keyType, err
}
