package nft

import (
	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// Attributes of linux/netfilter/nf_tables.h that golang.org/x/sys/unix lacks.
const (
	nftaTableUserdata  = 6  // NFTA_TABLE_USERDATA
	nftaChainFlags     = 10 // NFTA_CHAIN_FLAGS
	nftaChainUserdata  = 12 // NFTA_CHAIN_USERDATA
	nftaSetExpr        = 17 // NFTA_SET_EXPR
	nftaSetExpressions = 18 // NFTA_SET_EXPRESSIONS
	nftaSetCount       = 20 // NFTA_SET_COUNT, newer than 6.12
	nftaSetElemKeyEnd  = 10 // NFTA_SET_ELEM_KEY_END
	nftaSetElemExprs   = 11 // NFTA_SET_ELEM_EXPRESSIONS
	nftaDynsetExprs    = 10 // NFTA_DYNSET_EXPRESSIONS
	nftaFlowtableTable = 1  // NFTA_FLOWTABLE_TABLE
	nftaFlowtableName  = 2  // NFTA_FLOWTABLE_NAME
)

const (
	maxNameLen    = 255 // NFT_NAME_MAXLEN without the final NUL
	maxCommentLen = 128 // nft's limit, with the final NUL
	udataComment  = 0   // NFTNL_UDATA_{TABLE,CHAIN,RULE,SET_ELEM}_COMMENT
	messageType   = unix.NFNL_SUBSYS_NFTABLES << 8
)

// header is the header of a message with an NFT_MSG_* command.
func header(command int, flags uint16, family byte) netlink.Header {
	return netlink.Header{Type: messageType | uint16(command), Flags: flags, Family: family}
}

// commandOf returns the NFT_MSG_* of an nf_tables message, and -1 for any other message.
func commandOf(m netlink.Message) int {
	if m.Type&^0xff != messageType {
		return -1
	}
	return int(m.Type & 0xff)
}
