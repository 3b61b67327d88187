package nft

import (
	"context"
	"errors"
	"iter"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/nftables"
)

// findGroup is the number of keys in one request of Find: the kernel answers with a message for each.
const findGroup = 100

// Find is part of [Table].
func (t *kernelTable) Find(ctx context.Context, set string, keys iter.Seq[[]byte]) iter.Seq2[Element, error] {
	return func(yield func(Element, error) bool) {
		n := 0
		var group []byte
		give := func() bool {
			found, err := t.find(ctx, set, group)
			if !t.yield(set, found, yield) {
				return false
			}
			if err != nil {
				yield(Element{}, wrap("read elements of "+set, t.family, t.name, err))
				return false
			}
			n, group = 0, nil // the kernel may still read the last request
			return true
		}
		for key := range keys {
			if group == nil {
				group = make([]byte, 0, findGroup*(netlink.AttrHeaderLen*3+netlink.Align(len(key))))
			}
			group = appendKey(group, key)
			if n++; n == findGroup && !give() {
				return
			}
		}
		give()
	}
}

// yield yields a list of a set's elements, and returns false if the caller wants no more.
func (t *kernelTable) yield(set string, list []byte, yield func(Element, error) bool) bool {
	for a := netlink.ReadAttrs(list); a.Next(); {
		e, err := decodeElement(a.Data)
		if !yield(e, wrap("read elements of "+set, t.family, t.name, err)) || err != nil {
			return false
		}
	}
	return true
}

// find reads the elements of keys: both are lists of NFTA_LIST_ELEM.
func (t *kernelTable) find(ctx context.Context, set string, keys []byte) ([]byte, error) {
	var found []byte // written after ctx ended, too
	_, err := t.socket.Do(ctx, func() error {
		if len(keys) == 0 {
			_, err := t.getSet(set)
			return err
		}
		all := make([]byte, 0, 2*len(keys))
		rest := netlink.ReadAttrs(keys)
		for len(rest.Rest()) > 0 {
			err := t.socket.Get(t.header(unix.NFT_MSG_GETSETELEM), func(b []byte) []byte {
				b = netlink.AppendString(b, unix.NFTA_SET_ELEM_LIST_TABLE, t.name)
				b = netlink.AppendString(b, unix.NFTA_SET_ELEM_LIST_SET, set)
				return netlink.AppendBytes(b, unix.NFTA_SET_ELEM_LIST_ELEMENTS|unix.NLA_F_NESTED, rest.Rest())
			}, func(m netlink.Message) error {
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
func (t *kernelTable) exists(set string) bool {
	_, err := t.getSet(set)
	return err == nil
}

// appendKey appends an element that has a key only.
func appendKey(b, key []byte) []byte {
	b, elem := netlink.BeginNest(b, unix.NFTA_LIST_ELEM)
	b = nftables.AppendData(b, unix.NFTA_SET_ELEM_KEY, key)
	netlink.EndNest(b, elem)
	return b
}
