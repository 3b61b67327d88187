package nfttest

import (
	"bytes"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
)

// commit applies a batch as one transaction. If the table as a whole would be invalid, it finds the operation at fault, as
// the kernel does.
func (s *fakeState) commit(b *nft.Batch) error {
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
func (s *fakeState) batch(b *nft.Batch, eachStep bool) *nft.BatchError {
	rule := 0
	for m := netlink.ReadMessages(b.Bytes()); m.Next(); {
		if nf.CommandOf(m.Message) < 0 {
			continue
		}
		op, set, object := nft.DescribeMessage(m.Message)
		elements := [][]byte{nil} // no element
		if isElementMessage(m.Message) {
			elements = nil
			for a := elementsOf(m.Message); a.Next(); {
				elements = append(elements, a.Data)
			}
		}
		text := ""
		if nf.CommandOf(m.Message) == unix.NFT_MSG_NEWRULE {
			text = b.Rules()[rule].Text(s.family)
			rule++
		}
		for _, element := range elements {
			var err error
			if element == nil {
				err = s.object(m.Message, object, text)
			} else if e, failed := nf.DecodeElement(element); failed == nil {
				err = s.element(set, e, nf.CommandOf(m.Message), m.Flags)
			} else {
				err = failed
			}
			if err == nil && eachStep {
				err = s.validate()
			}
			if err != nil {
				return s.batchError(err, nft.BatchError{Op: op, Set: set, Object: object})
			}
		}
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
func (s *fakeState) element(name string, e nft.Element, command int, flags uint16) error {
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
	elem := fakeElement{value: bytes.Clone(e.Value), comment: nft.CutComment(e.Comment)}
	if e.Chain != "" {
		elem.verdict = fakeVerdict{"goto", e.Chain}
	}
	return s.addElement(set, set.elements, string(e.Key), elem, flags&unix.NLM_F_EXCL != 0)
}

func (s *fakeState) batchError(err error, e nft.BatchError) *nft.BatchError {
	if s.anonymous {
		e = nft.BatchError{Op: "commit"}
	}
	e.Family, e.Table = s.family, s.name
	e.Errno = unix.EINVAL
	if r, ok := errors.AsType[*refusal](err); ok {
		e.Errno, e.Text = r.errno, r.text
	}
	return &e
}

// isElementMessage reports whether a message holds elements.
func isElementMessage(m netlink.Message) bool {
	c := nf.CommandOf(m)
	return c == unix.NFT_MSG_NEWSETELEM || c == unix.NFT_MSG_DELSETELEM
}

// elementsOf reads the elements that a message holds.
func elementsOf(m netlink.Message) netlink.Attrs {
	return netlink.ReadAttrs(m.Attr(unix.NFTA_SET_ELEM_LIST_ELEMENTS))
}
