package nft

import (
	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// AddChain adds a chain that is not a base chain. Commit fails with EEXIST if the name exists.
func (b *Batch) AddChain(name, comment string) {
	if !b.checkChain("add", name) {
		return
	}
	b.begin(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	b.buf = netlink.AppendString(b.buf, unix.NFTA_CHAIN_TABLE, b.table)
	b.buf = netlink.AppendString(b.buf, unix.NFTA_CHAIN_NAME, name)
	if comment != "" {
		b.buf = appendComment(b.buf, nftaChainUserdata, comment)
	}
	netlink.EndMessage(b.buf, b.msgStart)
}

// DeleteChain deletes a chain with its rules. Commit fails with ENOENT if it does not exist, and with EBUSY if another rule
// or an element goes to it.
func (b *Batch) DeleteChain(name string) {
	if !b.checkChain("delete", name) {
		return
	}
	b.begin(unix.NFT_MSG_DELCHAIN, 0)
	b.buf = netlink.AppendString(b.buf, unix.NFTA_CHAIN_TABLE, b.table)
	b.buf = netlink.AppendString(b.buf, unix.NFTA_CHAIN_NAME, name)
	netlink.EndMessage(b.buf, b.msgStart)
}

// DeleteTable deletes the table with all its content. It needs no nft, which may be unable to read a table that a newer one wrote.
// Commit fails with ENOENT if the table does not exist.
func (b *Batch) DeleteTable() {
	b.others++
	b.begin(unix.NFT_MSG_DELTABLE, 0)
	b.buf = netlink.AppendString(b.buf, unix.NFTA_TABLE_NAME, b.table)
	netlink.EndMessage(b.buf, b.msgStart)
}

// FlushChain deletes a chain's rules.
func (b *Batch) FlushChain(name string) {
	if !b.checkChain("flush", name) {
		return
	}
	b.begin(unix.NFT_MSG_DELRULE, 0)
	b.buf = netlink.AppendString(b.buf, unix.NFTA_RULE_TABLE, b.table)
	b.buf = netlink.AppendString(b.buf, unix.NFTA_RULE_CHAIN, name)
	netlink.EndMessage(b.buf, b.msgStart)
}

// AddRule appends a rule to a chain. Commit fails with ENOENT if the chain, or a chain or set that the rule uses, does not
// exist.
func (b *Batch) AddRule(chain string, r Rule) {
	if !b.checkChain("add a rule to", chain) {
		return
	}
	if len(r) == 0 {
		b.refuse("nftables: cannot add a rule to chain %q of table %s: it is empty", chain, b.table)
		return
	}
	family := b.knftablesFamily
	b.begin(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND)
	b.buf = netlink.AppendString(b.buf, unix.NFTA_RULE_TABLE, b.table)
	b.buf = netlink.AppendString(b.buf, unix.NFTA_RULE_CHAIN, chain)
	var list int
	b.buf, list = netlink.BeginNest(b.buf, unix.NFTA_RULE_EXPRESSIONS)
	for _, s := range r {
		b.buf = s.appendTo(b.buf, family)
	}
	netlink.EndNest(b.buf, list)
	netlink.EndMessage(b.buf, b.msgStart)
	b.rules = append(b.rules, r.Text(family))
}

// checkChain counts an operation on a chain, and returns false if it cannot be encoded.
func (b *Batch) checkChain(op, chain string) bool {
	b.others++
	if chain == "" || len(chain) > maxNameLen {
		b.refuse("nftables: cannot %s chain %q of table %s: a chain's name has 1 to %d bytes", op, chain, b.table, maxNameLen)
		return false
	}
	return true
}

// u32s are attributes that hold a number each.
type u32s []struct {
	typ   uint16
	value uint32
}

func (v u32s) appendTo(b []byte) []byte {
	for _, a := range v {
		b = netlink.AppendUint32(b, a.typ, a.value)
	}
	return b
}

// beginExpr begins an expression; end, given the buffer, ends it.
func beginExpr(b []byte, name string) (_ []byte, end func([]byte)) {
	b, elem := netlink.BeginNest(b, unix.NFTA_LIST_ELEM)
	b = netlink.AppendString(b, unix.NFTA_EXPR_NAME, name)
	b, data := netlink.BeginNest(b, unix.NFTA_EXPR_DATA)
	return b, func(b []byte) {
		netlink.EndNest(b, data)
		netlink.EndNest(b, elem)
	}
}

func appendExpr(b []byte, name string, v u32s) []byte {
	b, end := beginExpr(b, name)
	b = v.appendTo(b)
	end(b)
	return b
}

// appendPayload loads part of a header into the register at an offset.
func appendPayload(b []byte, at int, base uint32, offset, length int) []byte {
	return appendExpr(b, "payload", u32s{
		{unix.NFTA_PAYLOAD_DREG, register(at)}, {unix.NFTA_PAYLOAD_BASE, base},
		{unix.NFTA_PAYLOAD_OFFSET, uint32(offset)}, {unix.NFTA_PAYLOAD_LEN, uint32(length)},
	})
}

// appendLookup looks up the key in the first register.
func appendLookup(b []byte, set string, v u32s) []byte {
	b, end := beginExpr(b, "lookup")
	b = netlink.AppendUint32(b, unix.NFTA_LOOKUP_SREG, unix.NFT_REG_1)
	b = v.appendTo(b)
	b = netlink.AppendString(b, unix.NFTA_LOOKUP_SET, set)
	end(b)
	return b
}

// appendImmediateGoto goes to a chain unconditionally.
func appendImmediateGoto(b []byte, chain string) []byte {
	b, end := beginExpr(b, "immediate")
	b = netlink.AppendUint32(b, unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_VERDICT)
	b, data := netlink.BeginNest(b, unix.NFTA_IMMEDIATE_DATA)
	b = appendVerdict(b, chain)
	netlink.EndNest(b, data)
	end(b)
	return b
}
