package nft

import (
	"bytes"
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// Commit is part of [Table].
func (t *kernelTable) Commit(ctx context.Context, b *Batch) error {
	err := t.Conn.Commit(ctx, b.Batch)
	if r, ok := errors.AsType[*nf.Refusal](err); ok {
		_, err = t.Do(ctx, func() error { return t.blame(b.Bytes(), r.Result) })
	}
	return wrap("commit a batch", t.family, t.name, err)
}

// blame finds the operation that a result is about.
func (t *kernelTable) blame(data []byte, r netlink.Result) *BatchError {
	e := &BatchError{Family: t.family, Table: t.name, Op: "commit", Index: -1, Errno: r.Errno, Text: r.Text}
	index := 0
	for m := netlink.ReadMessages(data); m.Next(); {
		if m.Seq != r.Seq {
			index += operations(m.Message)
			continue
		}
		if m.Type == unix.NFNL_MSG_BATCH_BEGIN || m.Type == unix.NFNL_MSG_BATCH_END {
			return e
		}
		e.Op, e.Object = describeMessage(m.Message)
		e.Index = index
		if e.Op == "" || !isElementMessage(m.Message) {
			return e
		}
		nth, ok := elementAt(m.Message, r.Offset)
		if !ok {
			nth = t.firstRefused(data, m)
		}
		e.Index += nth
		e.Set, e.Key = elementKey(m.Message, nth)
		e.Object = ""
		e.what = t.describeKey(e.Set, e.Key)
		return e
	}
	return e
}

// isElementMessage reports whether a message holds elements.
func isElementMessage(m netlink.Message) bool {
	c := nf.CommandOf(m)
	return c == unix.NFT_MSG_NEWSETELEM || c == unix.NFT_MSG_DELSETELEM
}

// elementsOf reads the elements that a message holds.
func elementsOf(m netlink.Message) netlink.Attrs {
	return netlink.ReadAttrs(m.Attr(unix.NFTA_SET_ELEM_LIST_ELEMENTS))
}

// operations returns the number of a batch's operations in a message.
func operations(m netlink.Message) int {
	switch {
	case nf.CommandOf(m) < 0:
		return 0
	case !isElementMessage(m):
		return 1
	}
	n := 0
	for a := elementsOf(m); a.Next(); {
		n++
	}
	return n
}

// describeMessage returns the name of a message's operation, and its chain.
func describeMessage(m netlink.Message) (op, object string) {
	switch nf.CommandOf(m) {
	case unix.NFT_MSG_NEWTABLE:
		return "add", ""
	case unix.NFT_MSG_NEWSETELEM:
		return "add element", ""
	case unix.NFT_MSG_DELSETELEM:
		return "delete element", ""
	case unix.NFT_MSG_NEWCHAIN:
		return "add chain", m.AttrString(unix.NFTA_CHAIN_NAME)
	case unix.NFT_MSG_DELTABLE:
		return "delete table", ""
	case unix.NFT_MSG_DELCHAIN:
		return "delete chain", m.AttrString(unix.NFTA_CHAIN_NAME)
	case unix.NFT_MSG_NEWRULE:
		return "add rule", m.AttrString(unix.NFTA_RULE_CHAIN)
	case unix.NFT_MSG_DELRULE:
		return "flush chain", m.AttrString(unix.NFTA_RULE_CHAIN)
	}
	return "", ""
}

// elementAt returns the element of a message that an offset lies in, and false if it lies in none. The offset of the table
// or the set stands for the first element.
func elementAt(m netlink.Message, offset uint32) (nth int, ok bool) {
	if operations(m) == 1 {
		return 0, true
	}
	if offset < netlink.AttrsOffset {
		return 0, false
	}
	for a := m.Attrs(); a.Next(); {
		if a.Type != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
			if int(offset) == netlink.AttrsOffset+a.Offset {
				return 0, true
			}
			continue
		}
		start := netlink.AttrsOffset + a.Offset + netlink.AttrHeaderLen
		for e := a.Nested(); e.Next(); nth++ {
			if begin := start + e.Offset; int(offset) >= begin && int(offset) < begin+netlink.AttrHeaderLen+len(e.Data) {
				return nth, true
			}
		}
	}
	return 0, false
}

// elementKey returns the set and the key of a message's nth element.
func elementKey(m netlink.Message, nth int) (set string, key []byte) {
	for a := elementsOf(m); a.Next(); nth-- {
		if nth == 0 {
			key = netlink.Attr(netlink.Attr(a.Data, unix.NFTA_SET_ELEM_KEY), unix.NFTA_DATA_VALUE)
		}
	}
	return m.AttrString(unix.NFTA_SET_ELEM_LIST_SET), bytes.Clone(key)
}

// firstRefused finds the element at fault in a message of several, for kernels that do not report it: it sends the batch up
// to that message with one message for each element, and without its end, which makes the kernel check it and write
// nothing. It returns 0 if it cannot find out.
func (t *kernelTable) firstRefused(data []byte, culprit netlink.Messages) int {
	m := culprit.Message
	trial := append(make([]byte, 0, 3*len(data)), data[:culprit.Offset]...)
	count := operations(m)
	first := t.Reserve(count)
	seq := first
	for a := elementsOf(m); a.Next(); seq++ {
		start := len(trial)
		trial = netlink.AppendMessage(trial, netlink.Header{Type: m.Type, Flags: m.Flags &^ unix.NLM_F_ACK, Family: m.Family})
		netlink.SetSeq(trial, start, seq)
		for _, typ := range []uint16{unix.NFTA_SET_ELEM_LIST_TABLE, unix.NFTA_SET_ELEM_LIST_SET} {
			trial = netlink.AppendString(trial, typ, m.AttrString(typ))
		}
		var nest int
		trial, nest = netlink.BeginNest(trial, unix.NFTA_SET_ELEM_LIST_ELEMENTS)
		trial = netlink.AppendBytes(trial, unix.NFTA_LIST_ELEM|unix.NLA_F_NESTED, a.Data)
		netlink.EndNest(trial, nest)
		netlink.EndMessage(trial, start)
	}
	r, _, err := t.ExchangeBatch(trial, first, seq-1)
	if nth := int(r.Seq - first); err == nil && r.Errno != 0 && nth >= 0 && nth < count {
		return nth
	}
	return 0
}

// describeKey formats a key as nft does if the set's type can be read, or in hexadecimal.
func (t *kernelTable) describeKey(name string, key []byte) string {
	typ, err := t.KeyType(name)
	if err != nil {
		return formatFields(nil, key)
	}
	fs, _ := fieldsOfType(typ)
	return formatFields(fs, key)
}
