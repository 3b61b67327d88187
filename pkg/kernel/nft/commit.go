package nft

import (
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
		return t.blame(b.Bytes(), r.Result)
	}
	return wrap("commit a batch", t.family, t.Name(), err)
}

// blame describes the message that a result is about.
func (t *kernelTable) blame(data []byte, r netlink.Result) *BatchError {
	e := &BatchError{Family: t.family, Table: t.Name(), Op: "commit", Errno: r.Errno, Text: r.Text}
	for m := netlink.ReadMessages(data); m.Next(); {
		if m.Seq == r.Seq && nf.CommandOf(m.Message) >= 0 {
			e.Op, e.Set, e.Object = DescribeMessage(m.Message)
		}
	}
	return e
}

// DescribeMessage returns the name of a message's operation, and its set or chain.
func DescribeMessage(m netlink.Message) (op, set, chain string) {
	switch nf.CommandOf(m) {
	case unix.NFT_MSG_NEWTABLE:
		return "add table", "", ""
	case unix.NFT_MSG_NEWSETELEM:
		return "add element", m.AttrString(unix.NFTA_SET_ELEM_LIST_SET), ""
	case unix.NFT_MSG_DELSETELEM:
		return "delete element", m.AttrString(unix.NFTA_SET_ELEM_LIST_SET), ""
	case unix.NFT_MSG_NEWCHAIN:
		return "add chain", "", m.AttrString(unix.NFTA_CHAIN_NAME)
	case unix.NFT_MSG_DELTABLE:
		return "delete table", "", ""
	case unix.NFT_MSG_DELCHAIN:
		return "delete chain", "", m.AttrString(unix.NFTA_CHAIN_NAME)
	case unix.NFT_MSG_NEWRULE:
		return "add rule", "", m.AttrString(unix.NFTA_RULE_CHAIN)
	case unix.NFT_MSG_DELRULE:
		return "flush chain", "", m.AttrString(unix.NFTA_RULE_CHAIN)
	}
	return "commit", "", ""
}
