package nft

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// commitAttempts is how often a batch is sent that the kernel did not try because it was disturbed.
const commitAttempts = 5

// errUnconfirmed says that the kernel took a batch but did not acknowledge it.
var errUnconfirmed = errors.New("the kernel did not confirm the batch; whether the change was made is unknown: read the table again")

// Commit is part of [Table].
func (t *kernelTable) Commit(ctx context.Context, b *Batch) error {
	if b.err != nil {
		return b.err
	}
	if b.Len() == 0 {
		return nil
	}
	data, lastSeq := b.finish(t.socket.reserve(b.messages + 1))
	var refused *BatchError
	finished, err := t.socket.do(ctx, func() error {
		r, err := t.socket.commit(data, lastSeq)
		if err != nil || r.errno == 0 {
			return err
		}
		refused = t.blame(data, r)
		return refused
	})
	if !finished {
		// The kernel may still be reading the buffer.
		b.buf = bytes.Clone(b.buf)
	}
	return wrap("commit a batch", t.family, t.name, err)
}

// commit sends a batch, and returns the first error of the operations in it, or no error if all was done.
func (s *socket) commit(data []byte, lastSeq uint32) (result, error) {
	for attempt := 1; ; attempt++ {
		first, confirmed, err := s.exchange(data, lastSeq)
		if err != nil {
			return result{}, err
		}
		switch {
		case first.errno == unix.EAGAIN || first.errno == unix.EINTR || first.errno == unix.ERESTART:
			if attempt == commitAttempts {
				return first, nil
			}
			time.Sleep(time.Duration(attempt) * time.Millisecond)
		case first.errno != 0:
			return first, nil //nolint:nilerr // the caller words it
		case !confirmed:
			return result{}, errUnconfirmed
		default:
			return result{}, nil
		}
	}
}

// exchange sends a batch and reads all answers. The kernel has given them when sending returns.
func (s *socket) exchange(data []byte, lastSeq uint32) (first result, confirmed bool, _ error) {
	if err := s.begin(); err != nil {
		return first, false, err
	}
	if err := s.send(data); err != nil {
		return first, false, err
	}
	base := binary.NativeEndian.Uint32(data[8:])
	for {
		answer, err := s.receive(false)
		if answer == nil || err != nil {
			s.dirty = err != nil
			return first, confirmed, err
		}
		m := messages{rest: answer}
		for m.next() {
			if m.typ != unix.NLMSG_ERROR || m.seq-base > lastSeq-base {
				continue
			}
			r := resultOf(m.message)
			if r.errno == 0 {
				confirmed = confirmed || r.seq == lastSeq
			} else if first.errno == 0 || r.seq-base < first.seq-base {
				first = r
			}
		}
		if m.bad {
			return first, confirmed, errMalformed
		}
	}
}

// blame finds the operation that an error is about.
func (t *kernelTable) blame(data []byte, r result) *BatchError {
	e := &BatchError{Family: t.family, Table: t.name, Op: "commit", Index: -1, Errno: r.errno, Text: r.text}
	index := 0
	for m := (messages{rest: data}); m.next(); {
		if m.seq != r.seq {
			index += operations(m.message)
			continue
		}
		if m.typ == nfnlMsgBatchBegin || m.typ == nfnlMsgBatchEnd {
			return e
		}
		e.Op, e.Object = describeMessage(m.message)
		e.Index = index
		if e.Op == "" || !isElementMessage(m.message) {
			return e
		}
		nth, ok := elementAt(m.message, r.offset)
		if !ok {
			nth = t.socket.firstRefused(data, m)
		}
		e.Index += nth
		e.Set, e.Key = elementKey(m.message, nth)
		e.Object = ""
		e.what = t.describeKey(e.Set, e.Key)
		return e
	}
	return e
}

// isElementMessage tells messages that hold elements.
func isElementMessage(m message) bool {
	c := m.command()
	return c == unix.NFT_MSG_NEWSETELEM || c == unix.NFT_MSG_DELSETELEM
}

// operations is the number of a batch's operations in a message.
func operations(m message) int {
	switch {
	case m.command() < 0:
		return 0
	case !isElementMessage(m):
		return 1
	}
	n := 0
	list, _ := attr(m.attrs(), unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	for a := (attrs{rest: list}); a.next(); {
		n++
	}
	return n
}

// describeMessage names a message's operation, and the chain that it is about.
func describeMessage(m message) (op, object string) {
	switch m.command() {
	case unix.NFT_MSG_NEWSETELEM:
		return "add element", ""
	case unix.NFT_MSG_DELSETELEM:
		return "delete element", ""
	case unix.NFT_MSG_NEWCHAIN:
		return "add chain", attrString(m, unix.NFTA_CHAIN_NAME)
	case unix.NFT_MSG_DELCHAIN:
		return "delete chain", attrString(m, unix.NFTA_CHAIN_NAME)
	case unix.NFT_MSG_NEWRULE:
		return "add rule", attrString(m, unix.NFTA_RULE_CHAIN)
	case unix.NFT_MSG_DELRULE:
		return "flush chain", attrString(m, unix.NFTA_RULE_CHAIN)
	}
	return "", ""
}

func attrString(m message, typ uint16) string {
	b, _ := attr(m.attrs(), typ)
	return string(trimNUL(b))
}

// elementAt tells which element of a message begins at the offset, and false if the offset does not say. An offset of
// the table or the set is the first element's fault.
func elementAt(m message, offset uint32) (nth int, ok bool) {
	const toAttrs = unix.NLMSG_HDRLEN + nfgenmsgLen
	if operations(m) == 1 {
		return 0, true
	}
	if offset < toAttrs {
		return 0, false
	}
	for a := (attrs{rest: m.attrs()}); a.next(); {
		if a.typ != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
			if int(offset) == toAttrs+a.off {
				return 0, true
			}
			continue
		}
		start := toAttrs + a.off + attrHeaderLen
		for e := (attrs{rest: a.data}); e.next(); nth++ {
			if begin := start + e.off; int(offset) >= begin && int(offset) < begin+attrHeaderLen+len(e.data) {
				return nth, true
			}
		}
	}
	return 0, false
}

// elementKey is the set and the key of a message's nth element.
func elementKey(m message, nth int) (set string, key []byte) {
	list, _ := attr(m.attrs(), unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	for a := (attrs{rest: list}); a.next(); nth-- {
		if nth == 0 {
			nest, _ := attr(a.data, unix.NFTA_SET_ELEM_KEY)
			key, _ = attr(nest, unix.NFTA_DATA_VALUE)
		}
	}
	return attrString(m, unix.NFTA_SET_ELEM_LIST_SET), bytes.Clone(key)
}

// firstRefused finds the element that is at fault in a message of several, for kernels that do not tell: it sends the
// batch up to there with one message for each element, and without its end, which makes the kernel try it and write
// nothing. 0 if nothing can be found out.
func (s *socket) firstRefused(data []byte, culprit messages) int {
	m := culprit.message
	trial := append(make([]byte, 0, 3*len(data)), data[:culprit.off]...)
	list, _ := attr(m.attrs(), unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	count := operations(m)
	first := s.reserve(count)
	seq := first
	for a := (attrs{rest: list}); a.next(); seq++ {
		start := len(trial)
		trial = appendMessage(trial, m.typ, m.flags&^unix.NLM_F_ACK, m.body[0])
		binary.NativeEndian.PutUint32(trial[start+8:], seq)
		for _, typ := range []uint16{unix.NFTA_SET_ELEM_LIST_TABLE, unix.NFTA_SET_ELEM_LIST_SET} {
			trial = appendString(trial, typ, attrString(m, typ))
		}
		var nest int
		trial, nest = beginNest(trial, unix.NFTA_SET_ELEM_LIST_ELEMENTS)
		trial = appendBytes(trial, unix.NFTA_LIST_ELEM|nlaNested, a.data)
		endNest(trial, nest)
		endMessage(trial, start)
	}
	binary.NativeEndian.PutUint32(trial[8:], first-1) // so that exchange takes the numbers that follow
	r, _, err := s.exchange(trial, seq-1)
	if nth := int(r.seq - first); err == nil && r.errno != 0 && nth >= 0 && nth < count {
		return nth
	}
	return 0
}
