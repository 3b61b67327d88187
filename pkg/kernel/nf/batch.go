package nf

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// maxMessageLen bounds the messages that several elements share. An attribute, and so a list of elements, is at most
// 65,535 bytes; an element is well below 2,000.
const maxMessageLen = 60_000

// maxOperation is more than the bytes of any operation on an element or a chain, and of the end of a batch.
const maxOperation = 8 << 10

// Batch collects changes of a table that [Conn.Commit] makes in this order as one transaction. An element is replaced by deleting
// and adding it.
//
// Operations are encoded at once, into one buffer that Reset keeps: a batch that is reused allocates nothing.
type Batch struct {
	of  TableName
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
	// err is the error of the first operation that cannot be encoded.
	err error
}

// NewBatch makes an empty batch for a table, of which one commit may have limit bytes ([Conn.Limit]); 0 is no limit.
func NewBatch(family Family, table string, limit int) *Batch {
	b := &Batch{of: TableName{family, table}, limit: limit}
	b.Reset()
	return b
}

// Family is that of the batch's tables.
func (b *Batch) Family() Family { return b.of.Family }

// Reset empties the batch.
func (b *Batch) Reset() {
	b.buf = b.buf[:0]
	b.open, b.messages, b.elements, b.others, b.err = false, 1, 0, 0, nil
	b.frame(unix.NFNL_MSG_BATCH_BEGIN)
}

// In makes the following operations those of another table of the family.
func (b *Batch) In(table string) {
	b.of.Name, b.open = table, false
}

// frame appends the message that begins or ends a batch.
func (b *Batch) frame(typ uint16) {
	start := len(b.buf)
	b.buf = netlink.AppendMessage(b.buf, netlink.Header{Type: typ, Flags: unix.NLM_F_REQUEST, Resource: unix.NFNL_SUBSYS_NFTABLES})
	netlink.EndMessage(b.buf, start)
}

// Bytes returns the batch's messages, without its end. They are valid until the next operation.
func (b *Batch) Bytes() []byte { return b.buf }

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
	if len(e.Value) > 0 && e.Chain != "" || len(e.Value) > maxDataLen || len(e.Chain) > MaxNameLen {
		b.refuse("nftables: cannot add element %x to set %s of table %s: an element has either a value of at most %d bytes or a chain",
			e.Key, set, b.of.Name, maxDataLen)
		return
	}
	b.openMessage(unix.NFT_MSG_NEWSETELEM, flags, set)
	var elem int
	b.buf, elem = beginElement(b.buf, e.Key)
	switch {
	case e.Chain != "":
		var data int
		b.buf, data = netlink.BeginNest(b.buf, unix.NFTA_SET_ELEM_DATA)
		b.buf = AppendVerdict(b.buf, Goto, e.Chain)
		netlink.EndNest(b.buf, data)
	case len(e.Value) > 0:
		b.buf = AppendData(b.buf, unix.NFTA_SET_ELEM_DATA, e.Value)
	}
	b.buf = AppendComment(b.buf, unix.NFTA_SET_ELEM_USERDATA, e.Comment)
	b.endElement(elem)
}

// Delete deletes an element; an empty key is that of a catch-all element. Commit fails with ENOENT if it does not exist.
func (b *Batch) Delete(set string, key []byte) {
	if !b.check("delete", set, key) {
		return
	}
	b.openMessage(unix.NFT_MSG_DELSETELEM, 0, set)
	var elem int
	b.buf, elem = beginElement(b.buf, key)
	b.endElement(elem)
}

// check counts an operation on an element, and returns false if it cannot be encoded.
func (b *Batch) check(op, set string, key []byte) bool {
	b.elements++
	if set == "" || len(set) > MaxNameLen || len(key) == 0 && op != "delete" || len(key) > maxDataLen {
		b.refuse("nftables: cannot %s element %x of set %q of table %s: a set's name has 1 to %d bytes, and a key 1 to %d",
			op, key, set, b.of.Name, MaxNameLen, maxDataLen)
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
	b.begin(command, flags, set)
	b.open = true
	b.set = append(b.set[:0], set...)
	b.buf, b.listPos = netlink.BeginNest(b.buf, unix.NFTA_SET_ELEM_LIST_ELEMENTS)
}

// begin begins a message about an object of the table, or about the table if the name is "".
func (b *Batch) begin(command int, flags uint16, name string) {
	b.open = false
	b.messages++
	b.command, b.flags = command, flags
	b.msgStart = len(b.buf)
	b.buf = AppendObject(b.buf, command, unix.NLM_F_REQUEST|flags, b.of, name)
}

// endElement sets the lengths of the element, of its list and of its message.
func (b *Batch) endElement(elem int) {
	netlink.EndNest(b.buf, elem)
	netlink.EndNest(b.buf, b.listPos)
	netlink.EndMessage(b.buf, b.msgStart)
}

// finish numbers the messages from seq on, asks for an acknowledgement of the last operation, whose number is lastSeq, and returns
// the batch with its end, ready to be sent. Until it has been sent it must not be changed.
//
// It does not ask for an acknowledgement of the end, because kernels before 6.10 ignore that.
func (b *Batch) finish(seq uint32) (data []byte, lastSeq uint32) {
	last, lastFlags := 0, uint16(0)
	for m := netlink.ReadMessages(b.buf); m.Next(); {
		netlink.SetFlags(b.buf, m.Offset, m.Flags&^unix.NLM_F_ACK)
		netlink.SetSeq(b.buf, m.Offset, seq)
		last, lastSeq = m.Offset, seq
		lastFlags = m.Flags
		seq++
	}
	netlink.SetFlags(b.buf, last, lastFlags|unix.NLM_F_ACK)
	n := len(b.buf)
	b.frame(unix.NFNL_MSG_BATCH_END)
	netlink.SetSeq(b.buf, n, seq)
	data, b.buf = b.buf, b.buf[:n]
	return data, lastSeq
}
