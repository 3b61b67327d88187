//go:build linux

package netlock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

const (
	// logGroup is the group of NFLOG that the holder has bound: "kp". It never changes, because different versions exclude each other.
	logGroup = 'k'<<8 | 'p'
	// talkGroup is where questions and answers are sent. Of the 32 groups of NETLINK_NETFILTER the kernel uses the first ones, NFNLGRP_*.
	talkGroup = 32
	// talkQueue is how many bytes of them wait until they are read.
	talkQueue = 64 << 10
	// attrOwner is the attribute of an answer, which has an Owner in JSON. A question has none.
	attrOwner = 1

	// pause is the time between two attempts, unless the holder says that it has released the lock. An attempt costs 10 µs, and
	// waking up a few hundred.
	pause = 500 * time.Millisecond
	// answerTimeout limits how long an answer may take. A holder that does not answer, for example because it is stopped, still
	// holds the lock.
	answerTimeout = time.Second

	// From linux/netfilter/nfnetlink_log.h.
	configMessage = 1 // NFULNL_MSG_CONFIG
	configCommand = 1 // NFULA_CFG_CMD
	commandBind   = 1 // NFULNL_CFG_CMD_BIND
)

// Owner is a process that holds the lock.
type Owner struct {
	// PID is the process id, in the process's own namespace; 0 is unknown.
	PID int `json:"pid,omitempty"`
	// Mode, Version and Since are the proxy mode, the program's version, and when it took the lock; empty if the owner
	// does not answer.
	Mode    string    `json:"mode,omitempty"`
	Version string    `json:"version,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	// Serving reports that the owner serves this node, as far as it knows: what it should have programmed is programmed.
	Serving bool `json:"serving,omitempty"`
}

// HeldError reports that another process holds the lock.
type HeldError struct{ Owner Owner }

func (e *HeldError) Error() string {
	o := e.Owner
	text := "another kube-proxy holds this network namespace"
	if o.PID != 0 {
		text += fmt.Sprintf(": process %d", o.PID)
	}
	if o.Mode == "" {
		return text + " (it does not answer)"
	}
	text += fmt.Sprintf(", mode %s, version %s, since %s", o.Mode, o.Version, o.Since.Format(time.RFC3339))
	if !o.Serving {
		text += " (it does not serve)"
	}
	return text
}

// Request is what a process that wants the lock says and wants to know.
type Request struct {
	// Self describes this process, except for PID, Since and Serving.
	Self Owner
	// Serving reports whether this process serves; nil means that it does not. It must be safe for concurrent use.
	Serving func() bool
	// Waiting is called with each owner that is waited for, and when what it says changes. It may be nil.
	Waiting func(Owner)

	subsystem uint16 // NFLOG's, but in tests
	last      Owner  // that was reported
	reported  bool
}

// report calls Waiting if something changed.
func (r *Request) report(o Owner) {
	if r.Waiting != nil && (!r.reported || r.last != o) {
		r.last, r.reported = o, true
		r.Waiting(o)
	}
}

// Lock is held until Release, or until the process ends.
type Lock struct {
	// group is the socket that binds the group of NFLOG, talk the one for questions and answers.
	group *netlink.Socket
	talk  *netlink.Listener
	ended chan struct{}
}

// Try takes the lock. The error is a [*HeldError] if another process holds it.
func Try(self Owner) (*Lock, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	return Acquire(ctx, Request{Self: self, Waiting: func(o Owner) { cancel(&HeldError{o}) }})
}

// Holder returns the process that holds the lock; held is false if none does.
func Holder() (owner Owner, held bool, err error) {
	lock, err := Try(Owner{Mode: "check"})
	var other *HeldError
	switch {
	case errors.As(err, &other):
		return other.Owner, true, nil
	case err != nil:
		return Owner{}, false, err
	}
	return Owner{}, false, lock.Release()
}

// Acquire takes the lock, and waits while another process holds it. The error is that of ctx if ctx ended first; any other
// error means that this process cannot lock its network namespace.
func Acquire(ctx context.Context, r Request) (*Lock, error) {
	if r.subsystem == 0 {
		r.subsystem = unix.NFNL_SUBSYS_ULOG
	}
	l, err := open()
	if err != nil {
		return nil, fmt.Errorf("lock this network namespace: %w", err)
	}
	if err := l.claim(ctx, &r); err != nil {
		return nil, errors.Join(err, l.close())
	}
	r.Self.PID, r.Self.Since = os.Getpid(), time.Now().UTC().Truncate(time.Second)
	go l.answer(r.Self, r.Serving)
	return l, nil
}

// open opens the sockets in the network namespace of the calling thread.
func open() (*Lock, error) {
	group, err := netlink.Open()
	if err != nil {
		return nil, err
	}
	talk, err := netlink.Listen(talkGroup, talkQueue)
	if err != nil {
		return nil, errors.Join(err, group.Close())
	}
	l := &Lock{group: group, talk: talk, ended: make(chan struct{})}
	if err := talk.Join(); err != nil {
		return nil, errors.Join(fmt.Errorf("join netfilter's multicast group %d: %w; it needs the capability NET_ADMIN", talkGroup, err), l.close())
	}
	return l, nil
}

func (l *Lock) close() error { return errors.Join(l.group.Close(), l.talk.Close()) }

// claim binds the group. Between attempts it asks who has bound it.
func (l *Lock) claim(ctx context.Context, r *Request) error {
	heard := time.Now()
	for {
		switch err := l.bind(r.subsystem); {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EEXIST): // these mean that another socket has bound it
			return fmt.Errorf("lock this network namespace by group %d of NFLOG: %w; load the kernel's module nfnetlink_log", logGroup, err)
		}
		answered, err := l.ask(ctx, r)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return fmt.Errorf("ask who holds this network namespace: %w", err)
		case answered:
			heard = time.Now()
		case time.Since(heard) >= answerTimeout:
			r.report(Owner{PID: r.last.PID})
		}
	}
}

// bind asks the kernel to bind the group to a socket of this process.
func (l *Lock) bind(subsystem uint16) error {
	h := netlink.Header{Type: subsystem<<8 | configMessage, Flags: unix.NLM_F_ACK, Resource: logGroup}
	return l.group.Get(h, func(b []byte) []byte { return netlink.AppendBytes(b, configCommand, []byte{commandBind}) }, nil)
}

// ask asks who has bound the group, and reports the answers until a pause has passed, or the group may be free.
func (l *Lock) ask(ctx context.Context, r *Request) (answered bool, _ error) {
	if err := l.say(nil); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, pause)
	defer cancel()
	err := l.hear(ctx, func(owner *Owner) (free bool) {
		if owner != nil && owner.PID != 0 {
			answered = true
			r.report(*owner)
		}
		return owner != nil && owner.PID == 0
	})
	if ctx.Err() != nil {
		err = nil
	}
	return answered, err
}

// answer answers questions until the socket is closed.
func (l *Lock) answer(self Owner, serving func() bool) {
	defer close(l.ended)
	_ = l.hear(context.Background(), func(owner *Owner) bool {
		if owner == nil {
			self.Serving = serving != nil && serving()
			_ = l.say(&self) // those who did not hear it ask again
		}
		return false
	})
}

// say reports to the other proxies who holds the lock, one without PID if no process does, or asks them if owner is nil.
func (l *Lock) say(owner *Owner) error {
	b := netlink.AppendMessage(nil, netlink.Header{Type: unix.NLMSG_NOOP})
	if owner != nil {
		text, err := json.Marshal(owner)
		if err != nil {
			return err
		}
		b = netlink.AppendBytes(b, attrOwner, text)
	}
	netlink.EndMessage(b, 0)
	return l.talk.Send(b)
}

// hear calls each with what others say, as an argument of theirs to say, until it returns true or ctx ends.
func (l *Lock) hear(ctx context.Context, each func(owner *Owner) (enough bool)) error {
	return l.talk.Await(ctx, func() (enough bool) {
		for found := true; found; { // some may be lost
			found, _ = l.talk.Receive(func(m netlink.Message) { enough = each(ownerIn(m)) || enough })
		}
		return enough
	})
}

// ownerIn returns what a message says. What is not plain text is nothing.
func ownerIn(m netlink.Message) *Owner {
	var said Owner
	if json.Unmarshal(m.Attr(attrOwner), &said) != nil || strings.ContainsFunc(said.Mode+said.Version, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil
	}
	return &said
}

// Release releases the lock. A waiting process takes it immediately.
func (l *Lock) Release() error {
	err := l.group.Close()
	_ = l.say(&Owner{}) // wakes up those who wait
	err = errors.Join(err, l.talk.Close())
	<-l.ended
	return err
}
