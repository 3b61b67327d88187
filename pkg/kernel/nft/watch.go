package nft

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// watchQueue is how many bytes of notifications are kept until they are read. The kernel uses that much memory only if they
// are not read. It is enough for some 20,000 elements.
const watchQueue = 8 << 20

// Watcher receives the kernel's notifications of all transactions in a network namespace, of this process and others. The
// kernel makes a message for each object and element that is written, so a Watcher makes large transactions slower. One
// goroutine owns it.
type Watcher interface {
	// Writes returns the transactions since the last call, the oldest first. Some are missing if there were too many: compare
	// Generation. It does not wait.
	Writes() ([]Write, error)
	Close() error
}

// Write is one transaction.
type Write struct {
	// Generation is the number that it led to.
	Generation Generation
	// Tables are those with objects or elements that it added or deleted.
	Tables []TableName
	// Elements are those that it added or deleted, in any order. Unlisted means that there were too many, or that it deleted
	// a set, whose elements the kernel does not list: then it has none.
	Elements []WrittenElement
	Unlisted bool
	// Program and Process are the name, at most 15 bytes, and the id of the program that made it. The id is that of the
	// host, also in a container.
	Program string
	Process int
}

// WrittenElement is an element of a set or map.
type WrittenElement struct {
	Table TableName
	Set   string
	Key   string
}

// maxListed is the number of elements of a transaction up to which they are listed.
const maxListed = 1000

// add adds an element.
func (w *Write) add(e WrittenElement) {
	if len(w.Elements) == maxListed {
		w.unlist()
	}
	if !w.Unlisted {
		w.Elements = append(w.Elements, e)
	}
}

// unlist removes all elements from the list, because some are not known.
func (w *Write) unlist() { w.Unlisted, w.Elements = true, nil }

// TableName identifies a table. Family is "" if it is not one of Open's.
type TableName struct {
	Family knftables.Family
	Name   string
}

// kernelWatcher is a subscription.
type kernelWatcher struct {
	socket *netlink.Socket
	// open is the transaction whose end has not been read yet; partial means that its beginning was lost.
	open    Write
	partial bool
	// begun is the generation at the beginning of the subscription. The kernel increments it before it sends the first message of
	// a transaction, so those of earlier numbers may have begun before the subscription.
	begun Generation
}

// Watch is part of [Table].
func (t *kernelTable) Watch(ctx context.Context) (Watcher, error) {
	socket, err := netlink.Subscribe(unix.NFNLGRP_NFTABLES, watchQueue)
	if err != nil {
		return nil, fmt.Errorf("nftables: subscribe to notifications: %w", err)
	}
	begun, err := t.Generation(ctx)
	if err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	return &kernelWatcher{socket: socket, begun: begun}, nil
}

// Writes is part of [Watcher].
func (w *kernelWatcher) Writes() (writes []Write, _ error) {
	lost, err := w.socket.Drain(func(m netlink.Message) {
		if end := w.add(m); end != nil {
			writes = append(writes, *end)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("nftables: read notifications: %w", err)
	}
	if lost { // what follows may be the end of a transaction, or of two that look like one
		w.open, w.partial = Write{}, true
		return nil, nil
	}
	return writes, nil
}

// add adds a message. It returns the transaction that ends with it: the last message is that of the new generation.
func (w *kernelWatcher) add(m netlink.Message) *Write {
	switch nf.CommandOf(m) {
	case -1:
		return nil
	case unix.NFT_MSG_NEWGEN:
		end := w.open
		var number uint32
		number, end.Program, end.Process = nf.ReadGeneration(m)
		end.Generation = Generation(number)
		whole := !w.partial && end.Generation.After(w.begun)
		w.open, w.partial = Write{}, false
		if !whole {
			return nil
		}
		return &end
	}
	w.note(m)
	return nil
}

// note adds what a message says to the open transaction.
func (w *kernelWatcher) note(m netlink.Message) {
	name := m.Attr(unix.NFTA_TABLE_NAME) // the number is the same for all kinds of objects
	of := TableName{familyName(m.Family), netlink.String(name)}
	if !slices.Contains(w.open.Tables, of) {
		w.open.Tables = append(w.open.Tables, of)
	}
	if nf.CommandOf(m) == unix.NFT_MSG_DELSET { // the kernel does not list the elements that go with it
		w.open.unlist()
	}
	if w.open.Unlisted || !isElementMessage(m) {
		return
	}
	set := m.AttrString(unix.NFTA_SET_ELEM_LIST_SET)
	for a := elementsOf(m); a.Next(); {
		key := netlink.Attr(netlink.Attr(a.Data, unix.NFTA_SET_ELEM_KEY), unix.NFTA_DATA_VALUE)
		w.open.add(WrittenElement{of, set, string(key)})
	}
}

// familyName is the reverse of familyNumber.
func familyName(number byte) knftables.Family {
	for _, f := range []knftables.Family{knftables.IPv4Family, knftables.IPv6Family, knftables.InetFamily} {
		if byte(familyNumber(f)) == number {
			return f
		}
	}
	return ""
}

// Close is part of [Watcher].
func (w *kernelWatcher) Close() error { return w.socket.Close() }
