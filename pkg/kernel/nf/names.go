package nf

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// Attributes of linux/netfilter/nf_tables.h that golang.org/x/sys/unix lacks.
const (
	AttrTableUserdata = 6  // NFTA_TABLE_USERDATA
	AttrChainUserdata = 12 // NFTA_CHAIN_USERDATA
	AttrSetExpr       = 17 // NFTA_SET_EXPR
	AttrSetCount      = 20 // NFTA_SET_COUNT, newer than 6.12

	nftaChainFlags     = 10 // NFTA_CHAIN_FLAGS
	chainBinding       = 4  // NFT_CHAIN_BINDING
	nftaSetExpressions = 18 // NFTA_SET_EXPRESSIONS
	nftaSetElemKeyEnd  = 10 // NFTA_SET_ELEM_KEY_END
	nftaSetElemExprs   = 11 // NFTA_SET_ELEM_EXPRESSIONS
	nftaDynsetExprs    = 10 // NFTA_DYNSET_EXPRESSIONS

	// Of a match or target of x_tables in a rule (linux/netfilter/nf_tables_compat.h): NFTA_MATCH_* and NFTA_TARGET_*.
	AttrExtensionName     = 1
	AttrExtensionRevision = 2
	AttrExtensionInfo     = 3
)

const (
	// attrTable is the name of an object's table: NFTA_TABLE_NAME, NFTA_CHAIN_TABLE and so on, for all kinds of objects.
	attrTable = unix.NFTA_TABLE_NAME
	// attrName is the name of an object in its table, of a rule's chain, or of an element's set: NFTA_SET_NAME and so on. Chains
	// alone have another: nameAttr.
	attrName = unix.NFTA_SET_NAME
)

// nameAttr returns the attribute that the messages of a command have the name of an object in.
func nameAttr(command int) uint16 {
	switch command {
	case unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_GETCHAIN, unix.NFT_MSG_DELCHAIN:
		return unix.NFTA_CHAIN_NAME
	}
	return attrName
}

const (
	// MaxNameLen is the longest name of an object, in bytes: NFT_NAME_MAXLEN without the final NUL.
	MaxNameLen = 255
	// maxDataLen is the longest key or value: NFT_DATA_VALUE_MAXLEN.
	maxDataLen = 64

	messageType = unix.NFNL_SUBSYS_NFTABLES << 8
)

// header is the header of a message with an NFT_MSG_* command.
func header(command int, flags uint16, family Family) netlink.Header {
	return netlink.Header{Type: messageType | uint16(command), Flags: flags, Family: byte(family)}
}

// AppendObject appends a message about an object of a table, or about the table if the name is "". Further attributes may follow until
// [netlink.EndMessage].
func AppendObject(b []byte, command int, flags uint16, of TableName, name string) []byte {
	start := len(b)
	b = netlink.AppendMessage(b, header(command, flags, of.Family))
	b = netlink.AppendString(b, attrTable, of.Name)
	if name != "" {
		b = netlink.AppendString(b, nameAttr(command), name)
	}
	netlink.EndMessage(b, start)
	return b
}

// CommandOf returns the NFT_MSG_* of an nf_tables message, and -1 for any other message.
func CommandOf(m netlink.Message) int {
	if m.Type&^0xff != messageType {
		return -1
	}
	return int(m.Type & 0xff)
}

// Family is the family of a table, an NFPROTO_*. 0 is none, or all.
type Family byte

// The families of the tables that Services need.
const (
	IPv4 Family = unix.NFPROTO_IPV4
	IPv6 Family = unix.NFPROTO_IPV6
	Inet Family = unix.NFPROTO_INET
)

// String returns the family's name as nft writes it.
func (f Family) String() string {
	switch f {
	case IPv4:
		return "ip"
	case IPv6:
		return "ip6"
	case Inet:
		return "inet"
	case unix.NFPROTO_ARP:
		return "arp"
	case unix.NFPROTO_NETDEV:
		return "netdev"
	case unix.NFPROTO_BRIDGE:
		return "bridge"
	}
	return fmt.Sprintf("family %d", byte(f))
}

// ParseFamily is the inverse of [Family.String]; it returns 0 for other names.
func ParseFamily(name string) Family {
	for f := Family(1); f < unix.NFPROTO_NUMPROTO; f++ {
		if f.String() == name {
			return f
		}
	}
	return 0
}

// AddressLen returns the number of bytes of the family's addresses, of IPv4 or IPv6.
func (f Family) AddressLen() int {
	if f == IPv6 {
		return 16
	}
	return 4
}

// addressOffset returns where the source or the destination address is in the network header.
func (f Family) addressOffset(e End) int {
	at := 12
	if f == IPv6 {
		at = 8
	}
	return at + int(e)*f.AddressLen()
}

// End is one of the two addresses of a packet.
type End int

// The two ends.
const (
	Source End = iota
	Destination
)

// HookName returns the name of a family's hook, of enum nf_inet_hooks or nf_dev_hooks.
func HookName(family Family, hook uint32) string {
	names := []string{"prerouting", "input", "forward", "output", "postrouting", "ingress"}
	if family == unix.NFPROTO_NETDEV {
		names = []string{"ingress", "egress"}
	}
	if hook < uint32(len(names)) {
		return names[hook]
	}
	return fmt.Sprintf("hook %d", hook)
}
