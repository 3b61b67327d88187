package nf

import (
	"encoding/binary"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// Chain is one chain of a table.
type Chain struct {
	Name string
	// Type, Hook and Priority are a base chain's; Type is "" for other chains. Hook is a number of enum
	// nf_inet_hooks (0 prerouting, 1 input, 2 forward, 3 output, 4 postrouting): see [HookName].
	Type     string
	Hook     uint32
	Priority int32
	// Drops means that a base chain's policy is drop: a packet that no rule accepts is dropped.
	Drops bool
	// Bound means that it is part of a rule that leads to it, as `jump { ... }`.
	Bound   bool
	Comment string
}

// AppendTo appends what a message says about the chain, except its name.
func (c *Chain) AppendTo(b []byte) []byte {
	if c.Type != "" {
		b = netlink.AppendString(b, unix.NFTA_CHAIN_TYPE, c.Type)
		var hook int
		b, hook = netlink.BeginNest(b, unix.NFTA_CHAIN_HOOK)
		b = netlink.AppendUint32(b, unix.NFTA_HOOK_HOOKNUM, c.Hook)
		b = netlink.AppendUint32(b, unix.NFTA_HOOK_PRIORITY, uint32(c.Priority))
		netlink.EndNest(b, hook)
		policy := Accept
		if c.Drops {
			policy = Drop
		}
		b = netlink.AppendUint32(b, unix.NFTA_CHAIN_POLICY, uint32(policy))
	}
	return AppendComment(b, AttrChainUserdata, c.Comment)
}

// DecodeChain decodes a message about a chain.
func DecodeChain(m netlink.Message) (c Chain) {
	for a := m.Attrs(); a.Next(); {
		switch a.Type {
		case unix.NFTA_CHAIN_NAME:
			c.Name = a.String()
		case unix.NFTA_CHAIN_TYPE:
			c.Type = a.String()
		case unix.NFTA_CHAIN_POLICY:
			c.Drops = Verdict(a.Uint32()) == Drop
		case nftaChainFlags:
			c.Bound = a.Uint32()&chainBinding != 0
		case AttrChainUserdata:
			c.Comment = CommentOf(a.Data)
		case unix.NFTA_CHAIN_HOOK:
			for h := a.Nested(); h.Next(); {
				switch h.Type {
				case unix.NFTA_HOOK_HOOKNUM:
					c.Hook = h.Uint32()
				case unix.NFTA_HOOK_PRIORITY:
					c.Priority = int32(h.Uint32())
				}
			}
		}
	}
	return c
}

// Chains visits the chains of a family: those of one table, or of all if table is "".
func (c *Conn) Chains(family Family, table string, visit func(table string, chain Chain)) error {
	last := ""
	return c.Dump(Query{Command: unix.NFT_MSG_GETCHAIN, Family: family, Table: table}, func(m netlink.Message) error {
		if name := textOf(m.Attr(attrTable)); string(name) != last {
			last = string(name)
		}
		visit(last, DecodeChain(m))
		return nil
	})
}

// Chain reads a chain. The error is ENOENT if there is none.
func (c *Conn) Chain(family Family, table, name string) (chain Chain, _ error) {
	err := c.Get(Query{Command: unix.NFT_MSG_GETCHAIN, Family: family, Table: table, Name: name}, func(m netlink.Message) error {
		chain = DecodeChain(m)
		return nil
	})
	return chain, err
}

// Rule is a message with a rule. Its parts are valid until the visit that it was given to returns.
type Rule struct{ netlink.Message }

// Chain returns the name of the rule's chain.
func (r Rule) Chain() string { return r.AttrString(attrName) }

// Expressions returns the rule's expressions, for [ReadExpr].
func (r Rule) Expressions() netlink.Attrs {
	return netlink.ReadAttrs(r.Attr(unix.NFTA_RULE_EXPRESSIONS))
}

// UserData returns what the writer's program keeps with the rule, for example its comment ([CommentOf]).
func (r Rule) UserData() []byte { return r.Attr(unix.NFTA_RULE_USERDATA) }

// Rules visits the rules of a chain in their order, or those of all chains if chain is "". The kernel walks no other chain for it.
func (c *Conn) Rules(family Family, table, chain string, visit func(Rule)) error {
	return c.Dump(Query{Command: unix.NFT_MSG_GETRULE, Family: family, Table: table, Name: chain}, func(m netlink.Message) error {
		visit(Rule{m})
		return nil
	})
}

// Rule visits a rule. The error is ENOENT if there is none.
func (c *Conn) Rule(family Family, table, chain string, handle uint64, visit func(Rule)) error {
	q := Query{Command: unix.NFT_MSG_GETRULE, Family: family, Table: table, Name: chain,
		More: netlink.AppendBytes(nil, unix.NFTA_RULE_HANDLE, binary.BigEndian.AppendUint64(nil, handle))}
	return c.Get(q, func(m netlink.Message) error {
		visit(Rule{m})
		return nil
	})
}

// Set is one set or map of a table.
type Set struct {
	Name string
	Map  bool
	// Count is the number of elements, or -1 if the kernel does not report it (6.12 does not, 6.18 does).
	Count int
	// Size is the most elements that the declaration allows; 0 is no bound.
	Size int
}

// declaration is a set with what its declaration says.
type declaration struct {
	Set
	flags uint32 // NFT_SET_*
}

func decodeSet(m netlink.Message) (s declaration) {
	s.Count = -1
	for a := m.Attrs(); a.Next(); {
		switch a.Type {
		case unix.NFTA_SET_NAME:
			s.Name = a.String()
		case unix.NFTA_SET_FLAGS:
			s.flags = a.Uint32()
			s.Map = s.flags&unix.NFT_SET_MAP != 0
		case AttrSetCount:
			s.Count = int(a.Uint32())
		case unix.NFTA_SET_DESC:
			s.Size = int(a.Nested().FindUint32(unix.NFTA_SET_DESC_SIZE))
		}
	}
	return s
}

// Counter is a named counter of a table, which rules count with (`counter name`).
type Counter struct {
	Name           string
	Packets, Bytes uint64
}

// decodeNamedCounter decodes a stateful object; ok is false if it is not a counter.
func decodeNamedCounter(m netlink.Message) (c Counter, ok bool) {
	for a := m.Attrs(); a.Next(); {
		switch a.Type {
		case unix.NFTA_OBJ_NAME:
			c.Name = a.String()
		case unix.NFTA_OBJ_TYPE:
			ok = a.Uint32() == unix.NFT_OBJECT_COUNTER
		case unix.NFTA_OBJ_DATA:
			c.Packets, c.Bytes = decodeCounts(a.Nested())
		}
	}
	return c, ok
}

// Counts returns what an expression counted; ok is false if it is not a counter.
func Counts(expression []byte) (packets, octets uint64, ok bool) {
	name, attrs := ReadExpr(expression)
	if string(name) != "counter" {
		return 0, 0, false
	}
	packets, octets = decodeCounts(attrs)
	return packets, octets, true
}

func decodeCounts(c netlink.Attrs) (packets, octets uint64) {
	for c.Next() {
		switch c.Type {
		case unix.NFTA_COUNTER_PACKETS:
			packets = c.Uint64()
		case unix.NFTA_COUNTER_BYTES:
			octets = c.Uint64()
		}
	}
	return packets, octets
}

const (
	maxCommentLen = 128 // nft's limit, with the final NUL
	udataComment  = 0   // NFTNL_UDATA_{TABLE,CHAIN,RULE,SET_ELEM}_COMMENT
)

// CommentOf finds the comment in an object's user data: a list of type, length and value.
func CommentOf(udata []byte) string {
	for len(udata) >= 2 && len(udata) >= 2+int(udata[1]) {
		value := udata[2 : 2+int(udata[1])]
		if udata[0] == udataComment {
			return netlink.String(value)
		}
		udata = udata[2+len(value):]
	}
	return ""
}

// AppendComment appends user data with a comment, unless it is empty, as nft keeps it: type, length, text, NUL. The type is 0 for all objects.
func AppendComment(b []byte, typ uint16, comment string) []byte {
	if comment == "" {
		return b
	}
	comment = CutComment(comment)
	var buf [2 + maxCommentLen]byte
	v := append(buf[:0], udataComment, byte(len(comment)+1))
	v = append(v, comment...)
	return netlink.AppendBytes(b, typ, append(v, 0))
}

// CutComment cuts a comment to the length that nft accepts, 127 bytes, between two characters.
func CutComment(comment string) string {
	if len(comment) < maxCommentLen {
		return comment
	}
	n := maxCommentLen - 1
	for n > 0 && !utf8.RuneStart(comment[n]) {
		n--
	}
	return comment[:n]
}
