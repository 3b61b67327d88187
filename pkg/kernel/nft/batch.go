package nft

import (
	"fmt"
	"math"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/nftables"
)

// maxMessageLen bounds the messages that several elements share. An attribute, and so a list of elements, is at most
// 65,535 bytes; an element is well below 2,000.
const maxMessageLen = 60_000

// maxOperation is more than the bytes of any operation on an element or a chain, and of the end of a batch.
const maxOperation = 8 << 10

// Batch collects changes to elements, and to a few chains, that [Table.Commit] makes in this order as one transaction.
// An element is replaced by deleting and adding it. Make one with [Table.NewBatch].
//
// Operations are encoded at once, into one buffer that Reset keeps: a batch that is reused allocates nothing.
type Batch struct {
	family byte
	table  string
	// knftablesFamily is the name of family.
	knftablesFamily knftables.Family

	buf []byte
	// An open message takes further elements of the same set: where it and its list of elements begin in buf.
	open              bool
	msgStart, listPos int
	command           int
	flags             uint16
	set               []byte

	messages, elements, others int
	// limit is how many bytes can be committed at once; 0 is no limit.
	limit int
	// rules are the rules that the batch adds, as nft prints them, in order.
	rules []string
	// err is the error of the first operation that cannot be encoded.
	err error
}

// newBatch makes an empty batch for a table, of which a commit may have so many bytes; 0 is no limit.
func newBatch(family knftables.Family, table string, limit int) *Batch {
	b := &Batch{family: familyNumber(family), knftablesFamily: family, table: table, limit: limit}
	b.Reset()
	return b
}

// Reset empties the batch.
func (b *Batch) Reset() {
	b.buf = nftables.BeginBatch(b.buf[:0])
	b.open, b.messages, b.elements, b.others, b.err = false, 1, 0, 0, nil
	b.rules = b.rules[:0]
}

// Len is the number of operations in the batch.
func (b *Batch) Len() int { return b.elements + b.others }

// Room returns about how many bytes can be added before Commit fails with EMSGSIZE, which it does outside of the initial user
// namespace if a batch exceeds twice the sysctl net.core.wmem_max.
func (b *Batch) Room() int {
	if b.limit == 0 {
		return math.MaxInt
	}
	return b.limit - len(b.buf)
}

// Full reports whether the next operations on elements, or on a chain and its rules, may not fit any more: commit the batch first.
func (b *Batch) Full() bool { return b.Room() < maxOperation && b.Len() > 0 }

// Add adds an element. Commit fails with EEXIST if the key exists, and with ENOENT if the set, or the chain that the element
// goes to, does not.
func (b *Batch) Add(set string, e *Element) {
	b.add(set, e, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
}

// Ensure adds an element unless it exists. Commit fails with EEXIST if the key exists with another value. To delete an
// element that may time out, call Ensure and then Delete: Delete alone fails if it has timed out.
func (b *Batch) Ensure(set string, e *Element) {
	b.add(set, e, unix.NLM_F_CREATE)
}

func (b *Batch) add(set string, e *Element, flags uint16) {
	if !b.check("add", set, e.Key) {
		return
	}
	if len(e.Value) > 0 && e.Chain != "" || len(e.Value) > maxDataLen || len(e.Chain) > maxNameLen {
		b.refuse("nftables: cannot add element %x to set %s of table %s: an element has either a value of at most %d bytes or a chain",
			e.Key, set, b.table, maxDataLen)
		return
	}
	b.openMessage(unix.NFT_MSG_NEWSETELEM, flags, set)
	elem := b.beginElement(e.Key)
	switch {
	case e.Chain != "":
		b.buf = appendGoto(b.buf, e.Chain)
	case len(e.Value) > 0:
		b.buf = nftables.AppendData(b.buf, unix.NFTA_SET_ELEM_DATA, e.Value)
	}
	if e.Comment != "" {
		b.buf = appendComment(b.buf, unix.NFTA_SET_ELEM_USERDATA, e.Comment)
	}
	b.endElement(elem)
}

// Delete deletes an element; an empty key is that of a catch-all element. Commit fails with ENOENT if it does not exist.
func (b *Batch) Delete(set string, key []byte) {
	if !b.check("delete", set, key) {
		return
	}
	b.openMessage(unix.NFT_MSG_DELSETELEM, 0, set)
	b.endElement(b.beginElement(key))
}

// maxDataLen is the longest key or value: NFT_DATA_VALUE_MAXLEN.
const maxDataLen = 64

// check counts an operation on an element, and returns false if it cannot be encoded.
func (b *Batch) check(op, set string, key []byte) bool {
	b.elements++
	if set == "" || len(set) > maxNameLen || len(key) == 0 && op != "delete" || len(key) > maxDataLen {
		b.refuse("nftables: cannot %s element %x of set %q of table %s: a set's name has 1 to %d bytes, and a key 1 to %d",
			op, key, set, b.table, maxNameLen, maxDataLen)
		return false
	}
	return true
}

// refuse records an operation that cannot be encoded: Commit returns the first.
func (b *Batch) refuse(format string, args ...any) {
	if b.err == nil {
		b.err = fmt.Errorf(format, args...)
	}
}

// openMessage begins a message for command and set, unless the open message is one.
func (b *Batch) openMessage(command int, flags uint16, set string) {
	if b.open && b.command == command && b.flags == flags && string(b.set) == set && len(b.buf)-b.msgStart < maxMessageLen {
		return
	}
	b.begin(command, flags)
	b.open = true
	b.set = append(b.set[:0], set...)
	b.buf = netlink.AppendString(b.buf, unix.NFTA_SET_ELEM_LIST_TABLE, b.table)
	b.buf = netlink.AppendString(b.buf, unix.NFTA_SET_ELEM_LIST_SET, set)
	b.buf, b.listPos = netlink.BeginNest(b.buf, unix.NFTA_SET_ELEM_LIST_ELEMENTS)
}

// begin begins a message.
func (b *Batch) begin(command int, flags uint16) {
	b.open = false
	b.messages++
	b.command, b.flags = command, flags
	b.msgStart = len(b.buf)
	b.buf = netlink.AppendMessage(b.buf, header(command, unix.NLM_F_REQUEST|flags, b.family))
}

// beginElement appends an element's key and returns where the element begins, for endElement.
func (b *Batch) beginElement(key []byte) (elem int) {
	b.buf, elem = beginElement(b.buf, key)
	return elem
}

// endElement sets the lengths of the element, of its list and of its message.
func (b *Batch) endElement(elem int) {
	netlink.EndNest(b.buf, elem)
	netlink.EndNest(b.buf, b.listPos)
	netlink.EndMessage(b.buf, b.msgStart)
}

// appendGoto appends an element's verdict.
func appendGoto(b []byte, chain string) []byte {
	b, data := netlink.BeginNest(b, unix.NFTA_SET_ELEM_DATA)
	b = nftables.AppendVerdict(b, nftables.Goto, chain)
	netlink.EndNest(b, data)
	return b
}

// appendComment appends user data with a comment as nft keeps it: type, length, text, NUL. The type is 0 for all objects.
func appendComment(b []byte, typ uint16, comment string) []byte {
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

// finish numbers the messages from seq on, and returns the batch with its end, ready to be sent. Until it has been sent it
// must not be changed.
func (b *Batch) finish(seq uint32) (data []byte, lastSeq uint32) {
	n := len(b.buf)
	data, lastSeq = nftables.EndBatch(b.buf, seq)
	b.buf = data[:n] // keeps what the append may have grown
	return data, lastSeq
}

// familyNumber is a family's NFPROTO_*.
func familyNumber(f knftables.Family) byte {
	switch f {
	case knftables.IPv4Family:
		return unix.NFPROTO_IPV4
	case knftables.IPv6Family:
		return unix.NFPROTO_IPV6
	case knftables.InetFamily:
		return unix.NFPROTO_INET
	}
	return unix.NFPROTO_UNSPEC
}
