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
)

const (
	// pause is the time between two attempts, unless the holder says that it has released the lock. An attempt costs 10 µs, and
	// waking up a few hundred.
	pause = 500 * time.Millisecond
	// askPeriod is the time between two questions to the holder.
	askPeriod = 2 * time.Second
	// answerTimeout limits how long an answer may take. A holder that does not answer, for example because it is stopped, still
	// holds the lock.
	answerTimeout = time.Second
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

// describe returns what a process says about itself. What is not plain text stays empty.
func describe(text []byte) (said Owner) {
	if json.Unmarshal(text, &said) != nil || strings.ContainsFunc(said.Mode+said.Version, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return Owner{}
	}
	return said
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
	last      *Owner
}

// report calls Waiting if something changed.
func (r *Request) report(o Owner) {
	if r.Waiting != nil && (r.last == nil || *r.last != o) {
		r.last = &o
		r.Waiting(o)
	}
}

// Lock is held until Release, or until the process ends.
type Lock struct {
	socket *socket
	ended  chan struct{}
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
	s, err := open(r.subsystem)
	if err != nil {
		return nil, err
	}
	if err := s.claim(ctx, &r); err != nil {
		return nil, errors.Join(err, s.file.Close())
	}
	l := &Lock{socket: s, ended: make(chan struct{})}
	r.Self.PID, r.Self.Since = os.Getpid(), time.Now().UTC().Truncate(time.Second)
	go l.answer(r.Self, r.Serving)
	return l, nil
}

// claim binds the group.
func (s *socket) claim(ctx context.Context, r *Request) error {
	var asked, answered time.Time
	for ctx.Err() == nil {
		now := time.Now()
		if now.Sub(asked) >= askPeriod {
			if err := s.ask(); err != nil {
				return fmt.Errorf("ask who holds this network namespace: %w", err)
			}
			asked = now
		}
		if err := s.configure(commandBind); err != nil {
			return fmt.Errorf("lock this network namespace: %w", err)
		}
		got, err := s.listen(now.Add(pause))
		switch {
		case err != nil || got.bound:
			return err
		case got.owner != nil:
			answered = time.Now()
			r.report(*got.owner)
		case answered.After(asked) || time.Since(asked) < answerTimeout:
		case got.refused > 0: // and nobody answers
			return fmt.Errorf("lock this network namespace by group %d of NFLOG: %w; load the kernel's module nfnetlink_log", logGroup, got.refused)
		case r.last == nil:
			r.report(Owner{})
		default:
			r.report(Owner{PID: r.last.PID})
		}
	}
	return context.Cause(ctx)
}

// heard is what a socket received.
type heard struct {
	// bound means that this socket has bound the group.
	bound bool
	// refused is the kernel's error if it cannot bind the group for anybody.
	refused unix.Errno
	// owner is the holder's answer.
	owner *Owner
}

// listen receives messages until a time, or until the group is bound, may be free, or its holder has answered.
func (s *socket) listen(until time.Time) (got heard, err error) {
	for !got.bound {
		m, err := s.receive(until)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return got, nil
		case errors.Is(err, unix.ENOBUFS): // some messages are lost
		case err != nil:
			return got, fmt.Errorf("wait for the lock on this network namespace: %w", err)
		case m.port != 0 && len(m.text) > 0:
			got.owner = new(describe(m.text))
			return got, nil
		case m.port != 0: // somebody asks, perhaps because the lock is free
			return got, nil
		case m.errno == unix.EPERM, m.errno == unix.EEXIST: // another socket has bound the group
		case m.errno == 0, m.errno == unix.EBUSY: // this socket had bound it already
			got.bound = true
		default:
			got.refused = m.errno
		}
	}
	return got, nil
}

// Release releases the lock. A waiting process takes it immediately.
func (l *Lock) Release() error {
	_ = l.socket.configure(commandUnbind) // closing does the same; it has an effect before those who wait are woken up
	_ = l.socket.ask()
	err := l.socket.file.Close()
	<-l.ended
	return err
}

// answer answers questions until the socket is closed.
func (l *Lock) answer(self Owner, serving func() bool) {
	defer close(l.ended)
	for {
		m, err := l.socket.receive(time.Time{})
		switch {
		case errors.Is(err, unix.ENOBUFS): // some questions are lost
		case err != nil:
			return
		case m.port != 0 && len(m.text) == 0:
			self.Serving = serving != nil && serving()
			if text, err := json.Marshal(self); err == nil {
				_ = l.socket.tell(m.port, text) // an error means that the process that asked has ended
			}
		}
	}
}
