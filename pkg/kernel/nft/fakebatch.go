package nft

import (
	"bytes"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// commit applies a batch as one transaction. If the table as a whole would be invalid, it finds the operation at fault, as
// the kernel does.
func (s *fakeState) commit(b *Batch) error {
	run := func(eachStep bool) error {
		return s.transact(func() error {
			if e := s.batch(b, eachStep); e != nil {
				return e
			}
			return nil
		})
	}
	err := run(false)
	if _, ok := errors.AsType[*refusal](err); ok {
		err = run(true)
	}
	return err
}

// batch applies a batch, read from the bytes that the kernel would get.
func (s *fakeState) batch(b *Batch, eachStep bool) *BatchError {
	index, rule := 0, 0
	for m := netlink.ReadMessages(b.Bytes()); m.Next(); {
		if nf.CommandOf(m.Message) < 0 {
			continue
		}
		op, object := describeMessage(m.Message)
		if isElementMessage(m.Message) {
			name := m.AttrString(unix.NFTA_SET_ELEM_LIST_SET)
			for a := elementsOf(m.Message); a.Next(); index++ {
				e, err := nf.DecodeElement(a.Data)
				if err == nil {
					err = s.element(name, e, nf.CommandOf(m.Message), m.Flags)
				}
				if err == nil && eachStep {
					err = s.validate()
				}
				if err != nil {
					return s.batchError(err, BatchError{
						Op: op, Set: name, Key: bytes.Clone(e.Key), Index: index, what: s.describeKey(name, e.Key),
					})
				}
			}
			continue
		}
		text := ""
		if nf.CommandOf(m.Message) == unix.NFT_MSG_NEWRULE {
			text = b.rules[rule]
			rule++
		}
		err := s.object(m.Message, object, text)
		if err == nil && eachStep {
			err = s.validate()
		}
		if err != nil {
			return s.batchError(err, BatchError{Op: op, Object: object, Index: index})
		}
		index++
	}
	return nil
}

// object applies an operation on the table or a chain.
func (s *fakeState) object(m netlink.Message, chain, rule string) error {
	switch nf.CommandOf(m) {
	case unix.NFT_MSG_NEWCHAIN:
		return s.addChain(chain, nf.DecodeChain(m).Comment, nil, true)
	case unix.NFT_MSG_DELCHAIN:
		return s.deleteChain(chain)
	case unix.NFT_MSG_DELTABLE:
		return s.deleteTable()
	case unix.NFT_MSG_DELRULE:
		return s.flushChain(chain)
	case unix.NFT_MSG_NEWRULE:
		return s.addRule(chain, parseRule(rule), -1)
	}
	return refuse(unix.EINVAL, "unknown message")
}

// element adds or deletes an element.
func (s *fakeState) element(name string, e Element, command int, flags uint16) error {
	set, err := s.set(name)
	if err != nil {
		return err
	}
	if set.interval {
		return refuse(unix.EINVAL, "elements of an interval set are written as text")
	}
	if len(e.Key) != width(set.key) {
		return refuse(unix.EINVAL, "the key has %d bytes; the set's has %d", len(e.Key), width(set.key))
	}
	if command == unix.NFT_MSG_DELSETELEM {
		return s.deleteElement(set, set.elements, string(e.Key))
	}
	if err := s.mayAdd("set "+name, e.Key); err != nil {
		return err
	}
	elem := fakeElement{value: bytes.Clone(e.Value), comment: CutComment(e.Comment)}
	if e.Chain != "" {
		elem.verdict = fakeVerdict{"goto", e.Chain}
	}
	return s.addElement(set, set.elements, string(e.Key), elem, flags&unix.NLM_F_EXCL != 0)
}

func (s *fakeState) batchError(err error, e BatchError) *BatchError {
	if s.anonymous {
		e = BatchError{Op: "commit", Index: -1}
	}
	e.Family, e.Table = s.family, s.name
	e.Errno = unix.EINVAL
	if r, ok := errors.AsType[*refusal](err); ok {
		e.Errno, e.Text = r.errno, r.text
	}
	return &e
}

func (s *fakeState) describeKey(set string, key []byte) string {
	if s.table == nil || s.table.sets[set] == nil {
		return formatFields(nil, key)
	}
	return formatFields(s.table.sets[set].key, key)
}
