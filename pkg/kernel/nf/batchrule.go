package nf

import (
	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// Flags of tables, NFT_TABLE_F_*. Owners are of Linux 5.12 and later.
const (
	tableDormant = 0x1
	tableOwned   = 0x2
)

// AddOwnedTable adds the table, owned by the connection: no other process can change it, and the kernel removes it with everything
// in it when the connection is closed or its process ends, in any way. Commit fails with EEXIST or EPERM if the name exists, and
// with EINVAL or EOPNOTSUPP before Linux 5.12, which has no such tables.
func (b *Batch) AddOwnedTable() {
	b.Object(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, "", netlink.AppendUint32(nil, unix.NFTA_TABLE_FLAGS, tableOwned))
}

// WakeTable makes packets meet the table's chains again. Commit fails with ENOENT if the table does not exist.
func (b *Batch) WakeTable() {
	b.Object(unix.NFT_MSG_NEWTABLE, 0, "", netlink.AppendUint32(nil, unix.NFTA_TABLE_FLAGS, 0))
}

// DeleteTable deletes the table with all its content. It needs no nft, which may be unable to read a table that a newer one wrote.
// Commit fails with ENOENT if the table does not exist.
func (b *Batch) DeleteTable() { b.Object(unix.NFT_MSG_DELTABLE, 0, "", nil) }

// Object adds any operation on an object of the table, or on the table if the name is "": an NFT_MSG_*, NLM_F_*, and further attributes.
func (b *Batch) Object(command int, flags uint16, name string, attributes []byte) {
	b.others++
	b.begin(command, flags, name)
	b.buf = append(b.buf, attributes...)
	netlink.EndMessage(b.buf, b.msgStart)
}

// AddChain adds a chain, if it has a type a base chain. Commit fails with EEXIST if the name exists.
func (b *Batch) AddChain(c Chain) {
	b.addChain(c, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
}

// EnsureChain adds a chain that is not a base chain unless it exists.
func (b *Batch) EnsureChain(name string) { b.addChain(Chain{Name: name}, unix.NLM_F_CREATE) }

func (b *Batch) addChain(c Chain, flags uint16) {
	if !b.beginChain("add", unix.NFT_MSG_NEWCHAIN, flags, c.Name) {
		return
	}
	b.buf = c.AppendTo(b.buf)
	netlink.EndMessage(b.buf, b.msgStart)
}

// DeleteChain deletes a chain with its rules. Commit fails with ENOENT if it does not exist, and with EBUSY if another rule
// or an element goes to it.
func (b *Batch) DeleteChain(name string) {
	b.onChain("delete", unix.NFT_MSG_DELCHAIN, 0, name)
}

// DeleteEmptyChain is DeleteChain, but Commit also fails with EBUSY if the chain has rules.
func (b *Batch) DeleteEmptyChain(name string) {
	b.onChain("delete", unix.NFT_MSG_DELCHAIN, unix.NLM_F_NONREC, name)
}

// FlushChain deletes a chain's rules.
func (b *Batch) FlushChain(name string) {
	b.onChain("flush", unix.NFT_MSG_DELRULE, 0, name)
}

// AddRule appends a rule to a chain: a list of expressions ([BeginExpr]). What protocol is, IPPROTO_*, the kernel passes to the extensions
// of x_tables in the rule; 0 is none. Commit fails with ENOENT if the chain, or a chain or set that the rule uses, does not exist.
func (b *Batch) AddRule(chain string, expressions []byte, protocol byte) {
	b.addRule(unix.NLM_F_APPEND, chain, expressions, protocol)
}

// InsertRule is AddRule for a rule at the head of the chain.
func (b *Batch) InsertRule(chain string, expressions []byte, protocol byte) {
	b.addRule(0, chain, expressions, protocol)
}

func (b *Batch) addRule(flags uint16, chain string, expressions []byte, protocol byte) {
	if !b.beginChain("add a rule to", unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|flags, chain) {
		return
	}
	if len(expressions) == 0 {
		b.refuse("nftables: cannot add a rule to chain %q of table %s: it is empty", chain, b.of.Name)
	}
	b.buf = netlink.AppendBytes(b.buf, unix.NFTA_RULE_EXPRESSIONS|unix.NLA_F_NESTED, expressions)
	if protocol != 0 {
		var compat int
		b.buf, compat = netlink.BeginNest(b.buf, unix.NFTA_RULE_COMPAT)
		b.buf = Numbers{{unix.NFTA_RULE_COMPAT_PROTO, uint32(protocol)}, {unix.NFTA_RULE_COMPAT_FLAGS, 0}}.AppendTo(b.buf)
		netlink.EndNest(b.buf, compat)
	}
	netlink.EndMessage(b.buf, b.msgStart)
}

// onChain adds an operation that needs only the chain's name.
func (b *Batch) onChain(op string, command int, flags uint16, chain string) {
	if b.beginChain(op, command, flags, chain) {
		netlink.EndMessage(b.buf, b.msgStart)
	}
}

// beginChain counts an operation on a chain or its rules, and begins its message; it returns false if that cannot be encoded.
func (b *Batch) beginChain(op string, command int, flags uint16, chain string) bool {
	b.others++
	if chain == "" || len(chain) > MaxNameLen {
		b.refuse("nftables: cannot %s chain %q of table %s: a chain's name has 1 to %d bytes", op, chain, b.of.Name, MaxNameLen)
		return false
	}
	b.begin(command, flags, chain)
	return true
}
