package nft

import (
	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/nftables"
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

// appendLookup looks up the key in the first register.
func appendLookup(b []byte, set string, v nftables.Numbers) []byte {
	b, open := nftables.BeginExpr(b, "lookup")
	b = netlink.AppendUint32(b, unix.NFTA_LOOKUP_SREG, unix.NFT_REG_1)
	b = v.AppendTo(b)
	b = netlink.AppendString(b, unix.NFTA_LOOKUP_SET, set)
	open.End(b)
	return b
}
