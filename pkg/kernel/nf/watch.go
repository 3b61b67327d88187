//go:build linux

package nf

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// TableName identifies a table.
type TableName struct {
	Family Family
	Name   string
}

// Kind is the kind of an Object.
type Kind uint8

// The kinds. Other is a table, or a stateful object or flowtable of it.
const (
	OtherObject Kind = iota
	ChainObject
	SetObject
	ElementObject
)

// Object is what a transaction added, changed or deleted. A rule is reported as its chain.
type Object struct {
	Table TableName
	Kind  Kind
	// Name is that of the chain or set. Key is that of the element.
	Name, Key string
	// Hooked means that it is a chain that was added or changed as a base chain.
	Hooked bool
}

// Write is what one transaction wrote to the watched tables.
type Write struct {
	// Program and Process are the name, at most 15 bytes, and the id of the program that made it. The id is that of the
	// host, also in a container.
	Program string
	Process int
	// Objects are in the order in which the kernel reports them; rules of one chain that follow each other are one Object.
	Objects []Object
}

// Watch receives the kernel's notifications of all transactions in a network namespace, those of this process included, and
// keeps what they wrote to some tables. The kernel sends the members of NFNLGRP_NFTABLES (linux/netfilter/nfnetlink.h) a copy of
// each object, and the number of each transaction, its generation: these have no gaps, so a Watch knows whether it has
// missed any. Its methods are safe for concurrent use.
type Watch struct {
	tables   map[TableName]bool
	listener Listener
	requests *Conn
	modified chan struct{}
	waits    sync.Once // run, at the first call of Modified
	ended    chan struct{}

	mu sync.Mutex
	// member reports that the kernel sends notifications. last is the generation up to which all of them are known.
	member bool
	last   Generation
	// open is the transaction whose end has not been read; partial means that its beginning is missing.
	open    Write
	partial bool
	// flagged means that the kernel says which objects are new: Linux 5.15 and many older ones do.
	flagged bool
	// writes are those since Take was called; missed means that there were others. messages counts what was read since then.
	writes   []Write
	missed   bool
	messages int
}

const (
	// watchQueue is how many bytes of notifications the kernel keeps until they are read: those of some 20,000 objects.
	watchQueue = 8 << 20
	// maxMessages limits what is read between two calls of Take, and so what a program that writes all the time costs.
	maxMessages = 20_000
)

// Listener is what a Watch receives from: the kernel's is a [netlink.Listener], whose methods these are.
type Listener interface {
	// Join and Leave begin and end the membership of the group.
	Join() error
	Leave() error
	// Receive takes some of what is waiting, Await waits for more.
	Receive(each func(netlink.Message)) (found, lost bool)
	Await(ctx context.Context, receive func() bool) error
	// Close ends Await.
	Close() error
}

// OpenWatch opens a Watch of tables in the network namespace of the calling thread. It requires CAP_NET_ADMIN.
func OpenWatch(tables ...TableName) (*Watch, error) {
	requests, err := Open()
	if err != nil {
		return nil, err
	}
	listener, err := netlink.Listen(unix.NFNLGRP_NFTABLES, watchQueue)
	if err != nil {
		return nil, errors.Join(err, requests.Close())
	}
	return NewWatch(requests, listener, tables...)
}

// NewWatch returns a Watch over a connection and a listener of NFNLGRP_NFTABLES, which it closes with itself.
func NewWatch(requests *Conn, listener Listener, tables ...TableName) (*Watch, error) {
	w := &Watch{
		tables: map[TableName]bool{}, listener: listener, requests: requests,
		modified: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	for _, t := range tables {
		w.tables[t] = true
	}
	if err := w.join(); err != nil {
		return nil, errors.Join(fmt.Errorf("subscribe to nf_tables' notifications: %w", err), listener.Close(), requests.Close())
	}
	return w, nil
}

// Modified returns a channel that receives a value when a watched table was written, or may have been, and for Report.
func (w *Watch) Modified() <-chan struct{} {
	w.waits.Do(func() { go w.run() })
	return w.modified
}

// Report sends a value to the channel of Modified.
func (w *Watch) Report() {
	select {
	case w.modified <- struct{}{}:
	default: // nobody has received the last one yet
	}
}

// Take returns the transactions that wrote watched tables since the last call, the oldest first, and whether these are all of
// them: there may have been too many. It does not wait, and includes all that ended before the call.
func (w *Watch) Take() (writes []Write, all bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.receive()
	if !w.member && w.join() != nil {
		w.missed = true
	}
	writes, all = w.writes, !w.missed
	w.writes, w.missed, w.messages = nil, false, 0
	return writes, all
}

// Pause makes the kernel report nothing until Resume is called. It is for large transactions of one's own: the kernel makes
// a message for each element. Call Take before it.
func (w *Watch) Pause() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.leave(); err != nil {
		return err
	}
	now, err := w.requests.Generation()
	w.receive()
	w.missed = w.missed || now != w.last // it ends after the pause began
	return err
}

// Resume ends a pause in which the caller made a number of transactions. alone reports that no other program made any, in any table.
func (w *Watch) Resume(own int) (alone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.last
	if err := w.join(); err != nil {
		w.missed = true
		return false
	}
	return w.last.Since(before) == uint32(own)
}

// Close closes the sockets.
func (w *Watch) Close() error {
	err := w.listener.Close()
	w.waits.Do(func() { close(w.ended) })
	<-w.ended
	return errors.Join(err, w.requests.Close())
}

// join enters the group. What belongs to a transaction that ended before is not known.
func (w *Watch) join() (err error) {
	if err := w.listener.Join(); err != nil {
		return err
	}
	w.member, w.open = true, Write{}
	w.last, err = w.requests.Generation()
	return err
}

// leave leaves the group.
func (w *Watch) leave() error {
	w.member = false
	return w.listener.Leave()
}

// run reads notifications until the Watch is closed.
func (w *Watch) run() {
	defer close(w.ended)
	for {
		err := w.listener.Await(context.Background(), func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.receive()
		})
		if err != nil {
			return
		}
		w.mu.Lock()
		report := len(w.writes) > 0 || w.missed
		w.mu.Unlock()
		if report {
			w.Report()
		}
	}
}

// receive reads what is waiting, and reports whether there was anything. After too many messages it leaves the group, so that
// there is an end.
func (w *Watch) receive() (some bool) {
	for {
		if w.messages > maxMessages && w.member {
			w.missed = true
			_ = w.leave() // it then receives more than it needs
		}
		found, lost := w.listener.Receive(w.add)
		some = some || found
		w.missed, w.partial = w.missed || lost, w.partial || lost
		if !found {
			return some
		}
	}
}

// add adds a message. The last one of a transaction is that of the new generation.
func (w *Watch) add(m netlink.Message) {
	w.messages++
	if command := CommandOf(m); command != unix.NFT_MSG_NEWGEN {
		if command >= 0 {
			w.note(m)
		}
		return
	}
	end := w.open
	w.open = Write{}
	number, program, process := ReadGeneration(m)
	if w.last.After(number) {
		return // it ended before the Watch was a member
	}
	// One with the last number had begun when the Watch became a member: its beginning may be missing.
	w.missed = w.missed || number.Since(w.last) != 1 || w.partial
	w.last, w.partial = number, false
	if len(end.Objects) > 0 {
		end.Program, end.Process = program, process
		w.writes = append(w.writes, end)
	}
}

// note adds what a message says to the open transaction. The attributes for the names of a table and of what it holds have
// mostly the same number for all kinds.
func (w *Watch) note(m netlink.Message) {
	table := m.AttrString(unix.NFTA_TABLE_NAME)
	of := Object{Table: TableName{Family(m.Family), table}}
	if !w.tables[of.Table] {
		return
	}
	switch command := CommandOf(m); command {
	case unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_DELCHAIN, unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE:
		of.Kind, of.Name = ChainObject, m.AttrString(nameAttr(command))
		of.Hooked = command == unix.NFT_MSG_NEWCHAIN && m.Attr(unix.NFTA_CHAIN_HOOK) != nil
		isNew := m.Flags&(unix.NLM_F_CREATE|unix.NLM_F_EXCL) != 0 // iptables sets the latter only
		w.flagged = w.flagged || isNew
		// A chain that is not new may have been renamed, and its earlier name is not known.
		w.missed = w.missed || command == unix.NFT_MSG_NEWCHAIN && w.flagged && !isNew
	case unix.NFT_MSG_NEWSET, unix.NFT_MSG_DELSET:
		of.Kind, of.Name = SetObject, m.AttrString(unix.NFTA_SET_NAME)
	case unix.NFT_MSG_NEWSETELEM, unix.NFT_MSG_DELSETELEM:
		of.Kind, of.Name = ElementObject, m.AttrString(unix.NFTA_SET_ELEM_LIST_SET)
		for a := netlink.ReadAttrs(m.Attr(unix.NFTA_SET_ELEM_LIST_ELEMENTS)); a.Next(); {
			of.Key = string(KeyOf(a.Data))
			w.open.Objects = append(w.open.Objects, of)
		}
		return
	}
	if n := len(w.open.Objects); n == 0 || w.open.Objects[n-1] != of {
		w.open.Objects = append(w.open.Objects, of)
	}
}
