package nft

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"
)

// Constants of linux/netlink.h, nfnetlink.h and nf_tables.h that golang.org/x/sys/unix lacks.
const (
	nfnlMsgBatchBegin = 0x10 // NFNL_MSG_BATCH_BEGIN
	nfnlMsgBatchEnd   = 0x11 // NFNL_MSG_BATCH_END

	nlmFAckTLVs = 0x200  // NLM_F_ACK_TLVS
	nlaNested   = 0x8000 // NLA_F_NESTED
	nlaTypeMask = 0x3fff // NLA_TYPE_MASK

	nftaTableHandle    = 4  // NFTA_TABLE_HANDLE
	nftaTableUserdata  = 6  // NFTA_TABLE_USERDATA
	nftaChainFlags     = 10 // NFTA_CHAIN_FLAGS
	nftaChainUserdata  = 12 // NFTA_CHAIN_USERDATA
	nftaSetHandle      = 16 // NFTA_SET_HANDLE
	nftaSetExpr        = 17 // NFTA_SET_EXPR
	nftaSetExpressions = 18 // NFTA_SET_EXPRESSIONS
	nftaSetCount       = 20 // NFTA_SET_COUNT, newer than 6.12
	nftaSetElemKeyEnd  = 10 // NFTA_SET_ELEM_KEY_END
	nftaSetElemExprs   = 11 // NFTA_SET_ELEM_EXPRESSIONS
	nftaDynsetExpr     = 7  // NFTA_DYNSET_EXPR
	nftaDynsetExprs    = 10 // NFTA_DYNSET_EXPRESSIONS
	nftaFlowtableTable = 1  // NFTA_FLOWTABLE_TABLE
	nftaFlowtableName  = 2  // NFTA_FLOWTABLE_NAME

	verdictGoto = 1<<32 - 4 // NFT_GOTO, which is -4, as the number of 32 bits that it is sent as
)

const (
	nfgenmsgLen    = 4
	attrHeaderLen  = 4
	maxNameLen     = 255 // NFT_NAME_MAXLEN without the final NUL
	maxCommentLen  = 128 // nft's limit, with the final NUL
	udataComment   = 0   // NFTNL_UDATA_{TABLE,CHAIN,RULE,SET_ELEM}_COMMENT
	nftMessageType = unix.NFNL_SUBSYS_NFTABLES << 8
)

// errMalformed says that a message does not have the shape that its header promises.
var errMalformed = errors.New("malformed netlink message")

// The host writes netlink headers in its own byte order, and nf_tables writes attributes in network order.

func align4(n int) int { return (n + 3) &^ 3 }

// appendMessage begins a message of the given type (nlmsg_type) for a family; the length is set by endMessage.
func appendMessage(b []byte, typ, flags uint16, family byte) []byte {
	b = append(b, 0, 0, 0, 0)
	b = binary.NativeEndian.AppendUint16(b, typ)
	b = binary.NativeEndian.AppendUint16(b, flags)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0) // sequence number and port id
	var resID uint16
	if typ == nfnlMsgBatchBegin || typ == nfnlMsgBatchEnd {
		resID = unix.NFNL_SUBSYS_NFTABLES
	}
	b = append(b, family, unix.NFNETLINK_V0)
	return binary.BigEndian.AppendUint16(b, resID)
}

// endMessage sets the length of the message that began at start and ends at the end of b.
func endMessage(b []byte, start int) {
	binary.NativeEndian.PutUint32(b[start:], uint32(len(b)-start))
}

func appendAttrHeader(b []byte, typ uint16, payload int) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(attrHeaderLen+payload))
	return binary.NativeEndian.AppendUint16(b, typ)
}

func appendPad(b []byte, payload int) []byte {
	for n := payload; n&3 != 0; n++ {
		b = append(b, 0)
	}
	return b
}

// appendBytes appends an attribute that holds v.
func appendBytes(b []byte, typ uint16, v []byte) []byte {
	b = appendAttrHeader(b, typ, len(v))
	b = append(b, v...)
	return appendPad(b, len(v))
}

// appendString appends an attribute that holds v and a final NUL.
func appendString(b []byte, typ uint16, v string) []byte {
	b = appendAttrHeader(b, typ, len(v)+1)
	b = append(b, v...)
	b = append(b, 0)
	return appendPad(b, len(v)+1)
}

// appendU32 appends an attribute that holds v in network order.
func appendU32(b []byte, typ uint16, v uint32) []byte {
	b = appendAttrHeader(b, typ, 4)
	return binary.BigEndian.AppendUint32(b, v)
}

// beginNest begins a nested attribute; endNest, given the same start, sets its length.
func beginNest(b []byte, typ uint16) (_ []byte, start int) {
	return appendAttrHeader(b, typ|nlaNested, 0), len(b)
}

func endNest(b []byte, start int) {
	binary.NativeEndian.PutUint16(b[start:], uint16(len(b)-start))
}

// attrs walks the attributes in a byte slice:
//
//	for a := (attrs{rest: b}); a.next(); { switch a.typ {...} }
//
// Check bad afterwards: it tells that the walk ended at something that is not an attribute.
type attrs struct {
	rest []byte
	typ  uint16 // without the flags
	data []byte
	off  int // offset of the attribute's header from where the walk began
	bad  bool

	consumed int
}

func (a *attrs) next() bool {
	if len(a.rest) < attrHeaderLen {
		a.bad = a.bad || len(a.rest) > 0
		return false
	}
	n := int(binary.NativeEndian.Uint16(a.rest))
	if n < attrHeaderLen || n > len(a.rest) {
		a.bad = true
		return false
	}
	a.off = a.consumed
	a.typ = binary.NativeEndian.Uint16(a.rest[2:]) & nlaTypeMask
	a.data = a.rest[attrHeaderLen:n]
	n = min(align4(n), len(a.rest))
	a.rest = a.rest[n:]
	a.consumed += n
	return true
}

func (a *attrs) u32() uint32 {
	if len(a.data) != 4 {
		a.bad = true
		return 0
	}
	return binary.BigEndian.Uint32(a.data)
}

func (a *attrs) u64() uint64 {
	if len(a.data) != 8 {
		a.bad = true
		return 0
	}
	return binary.BigEndian.Uint64(a.data)
}

// str is the attribute as a string, without its final NUL.
func (a *attrs) str() string { return string(trimNUL(a.data)) }

func trimNUL(b []byte) []byte {
	if len(b) > 0 && b[len(b)-1] == 0 {
		return b[:len(b)-1]
	}
	return b
}

// attr returns the first attribute of a type.
func attr(b []byte, typ uint16) ([]byte, bool) {
	for a := (attrs{rest: b}); a.next(); {
		if a.typ == typ {
			return a.data, true
		}
	}
	return nil, false
}

// message is one netlink message.
type message struct {
	typ   uint16
	flags uint16
	seq   uint32
	body  []byte // what follows nlmsghdr
}

// attrs is what follows nfgenmsg.
func (m message) attrs() []byte {
	if len(m.body) < nfgenmsgLen {
		return nil
	}
	return m.body[nfgenmsgLen:]
}

// command is the NFT_MSG_* of an nf_tables message, and -1 for any other message.
func (m message) command() int {
	if m.typ>>8 != unix.NFNL_SUBSYS_NFTABLES {
		return -1
	}
	return int(m.typ & 0xff)
}

// messages walks the netlink messages in a byte slice, as attrs does attributes.
type messages struct {
	rest []byte
	off  int // offset of the current message from where the walk began
	bad  bool
	message

	consumed int
}

func (m *messages) next() bool {
	if len(m.rest) < unix.NLMSG_HDRLEN {
		m.bad = m.bad || len(m.rest) > 0
		return false
	}
	n := int(binary.NativeEndian.Uint32(m.rest))
	if n < unix.NLMSG_HDRLEN || n > len(m.rest) {
		m.bad = true
		return false
	}
	m.off = m.consumed
	m.message = message{
		typ:   binary.NativeEndian.Uint16(m.rest[4:]),
		flags: binary.NativeEndian.Uint16(m.rest[6:]),
		seq:   binary.NativeEndian.Uint32(m.rest[8:]),
		body:  m.rest[unix.NLMSG_HDRLEN:n],
	}
	n = min(align4(n), len(m.rest))
	m.rest = m.rest[n:]
	m.consumed += n
	return true
}
