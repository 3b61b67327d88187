package netlink

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

func nftHeader(command int, flags uint16) Header {
	return Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | uint16(command), Flags: unix.NLM_F_REQUEST | flags, Family: unix.NFPROTO_IPV4}
}

// tables builds a batch that adds nf_tables' tables 0 to n-1.
func tables(s *Socket, n int) []byte {
	seq := s.Reserve(n + 2)
	var b []byte
	add := func(h Header, table string) {
		start := len(b)
		b = AppendMessage(b, h)
		SetSeq(b, start, seq)
		if table != "" {
			b = AppendString(b, unix.NFTA_TABLE_NAME, table)
		}
		EndMessage(b, start)
		seq++
	}
	add(Header{Type: unix.NFNL_MSG_BATCH_BEGIN, Flags: unix.NLM_F_REQUEST, Resource: unix.NFNL_SUBSYS_NFTABLES}, "")
	for i := range n {
		add(nftHeader(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE), fmt.Sprint("table", i))
	}
	add(Header{Type: unix.NFNL_MSG_BATCH_END, Flags: unix.NLM_F_REQUEST, Resource: unix.NFNL_SUBSYS_NFTABLES}, "")
	return b
}

func openKernel(t *testing.T, open func() (*Socket, error)) *Socket {
	t.Helper()
	s, err := open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestKernelSocket sends each kind of request.
func TestKernelSocket(t *testing.T) {
	netns.Enter(t)
	s := openKernel(t, Open)
	const count = 2000 // a dump of several chunks
	if err := s.Exchange(tables(s, count), func(m Message) error { return m.Result().Err() }); err != nil {
		t.Fatal(err)
	}
	stop := errors.New("enough")
	err := s.Dump(nftHeader(unix.NFT_MSG_GETTABLE, 0), nil, func(Message) error { return stop })
	if !errors.Is(err, stop) {
		t.Fatalf("a dump that the caller ends: %v", err)
	}
	named := func(name string) func(b []byte) []byte {
		return func(b []byte) []byte { return AppendString(b, unix.NFTA_TABLE_NAME, name) }
	}
	var found []string
	note := func(m Message) error {
		found = append(found, m.AttrString(unix.NFTA_TABLE_NAME))
		return nil
	}
	if err := s.Get(nftHeader(unix.NFT_MSG_GETTABLE, 0), named("table7"), note); err != nil || !slices.Equal(found, []string{"table7"}) {
		t.Errorf("after a dump that was abandoned, one table: %v, %v", found, err)
	}
	if err := s.Get(nftHeader(unix.NFT_MSG_GETTABLE, 0), named("none"), note); !errors.Is(err, unix.ENOENT) {
		t.Errorf("a table that does not exist: %v", err)
	}
	found = nil
	if err := s.Dump(nftHeader(unix.NFT_MSG_GETTABLE, 0), nil, note); err != nil || len(found) != count {
		t.Errorf("all tables: %d, %v, want %d", len(found), err, count)
	}
	if err := s.Get(Header{Type: unix.NLMSG_NOOP}, nil, note); !errors.Is(err, ErrNoAnswer) {
		t.Errorf("a message that the kernel ignores: %v", err)
	}
	if err := s.Get(Header{Type: unix.NLMSG_NOOP, Flags: unix.NLM_F_ACK}, nil, nil); err != nil {
		t.Errorf("a message that the kernel only acknowledges: %v", err)
	}
}

// TestKernelInterrupted adds tables during a dump.
func TestKernelInterrupted(t *testing.T) {
	netns.Enter(t)
	s, other := openKernel(t, Open), openKernel(t, Open)
	ignore := func(Message) error { return nil }
	if err := s.Exchange(tables(s, 2000), ignore); err != nil {
		t.Fatal(err)
	}
	messages := 0
	err := s.Dump(nftHeader(unix.NFT_MSG_GETTABLE, 0), nil, func(Message) error {
		if messages++; messages == 1 {
			return other.Exchange(tables(other, 2001), ignore)
		}
		return nil
	})
	if !errors.Is(err, ErrInterrupted) || messages < 2000 {
		t.Errorf("%v after %d messages", err, messages)
	}
}

// TestKernelListener receives notifications, first all of them, then more than the queue holds.
func TestKernelListener(t *testing.T) {
	netns.Enter(t)
	s := openKernel(t, Open)
	listen := func(queue int) *Listener {
		l, err := Listen(unix.NFNLGRP_NFTABLES, queue)
		if err == nil {
			err = l.Join()
		}
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	large, small := listen(1<<20), listen(4096)
	receive := func(listener *Listener, n int) (added int, lost bool) {
		t.Helper()
		if err := s.Exchange(tables(s, n), func(m Message) error { return m.Result().Err() }); err != nil {
			t.Fatal(err)
		}
		for {
			found, some := listener.Receive(func(m Message) {
				if m.Type == nftHeader(unix.NFT_MSG_NEWTABLE, 0).Type {
					added++
				}
			})
			if lost = lost || some; !found {
				return added, lost
			}
		}
	}
	if added, lost := receive(large, 10); added != 10 || lost {
		t.Errorf("got %d notifications, lost %v, want 10", added, lost)
	}
	if added, lost := receive(small, 2000); added >= 2000 || !lost {
		t.Errorf("got %d notifications of 2000 with a small queue, lost %v", added, lost)
	}
	if added, lost := receive(small, 2001); added != 1 || lost {
		t.Errorf("afterwards got %d notifications, lost %v, want that of the one new table", added, lost)
	}
	if err := small.Leave(); err != nil {
		t.Fatal(err)
	}
	if added, lost := receive(small, 2002); added != 0 || lost {
		t.Errorf("after Leave got %d notifications, lost %v", added, lost)
	}
	late, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	for range 2 {
		if err := small.Await(late, func() bool { return false }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("wait for what does not come: %v", err)
		}
	}
	if err := errors.Join(large.Close(), small.Close()); err != nil {
		t.Error(err)
	}
	if err := small.Await(t.Context(), func() bool { return false }); err == nil {
		t.Error("wait on a closed listener: no error")
	}
}

// TestKernelSettle checks that Settle returns.
func TestKernelSettle(t *testing.T) {
	if err := Settle(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestKernelSendLimit checks that what Limit returns can be sent at once, and no more, in the initial user namespace and in another one.
func TestKernelSendLimit(t *testing.T) {
	for name, test := range map[string]func(t *testing.T){
		"initial": func(t *testing.T) {
			netns.Enter(t)
			s := limited(t)
			if err := sendNoop(s, 16<<20); err != nil || s.Limit() < 16<<20 {
				t.Errorf("16 MiB cannot be sent: %v; the limit is %d", err, s.Limit())
			}
		},
		"lowered": func(t *testing.T) {
			netns.Enter(t)
			s := limited(t)
			if err := s.LimitSend(100_000); err != nil {
				t.Fatal(err)
			}
			exact(t, s, 100_000-32)
		},
		"another": func(t *testing.T) {
			if !netns.InUserNamespace(t) {
				return
			}
			text, err := os.ReadFile("/proc/sys/net/core/wmem_max")
			if err != nil {
				t.Skip(err) // the file is missing in network namespaces of older kernels
			}
			var most int
			if _, err := fmt.Sscan(string(text), &most); err != nil {
				t.Fatal(err)
			}
			exact(t, limited(t), 2*most-32)
		},
	} {
		t.Run(name, test)
	}
}

func limited(t *testing.T) *Socket {
	t.Helper()
	s, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// exact checks that so many bytes can be sent, and one more not.
func exact(t *testing.T, s *Socket, limit int) {
	t.Helper()
	most, more := sendNoop(s, limit), sendNoop(s, limit+1)
	if s.Limit() != limit || most != nil || !errors.Is(more, unix.EMSGSIZE) {
		t.Errorf("the limit is %d; want %d; sending that many bytes: %v; one more: %v", s.Limit(), limit, most, more)
	}
}

// sendNoop sends one message of a size, which has no effect.
func sendNoop(s *Socket, size int) error {
	data := make([]byte, size)
	AppendMessage(data[:0], Header{Type: unix.NLMSG_NOOP, Flags: unix.NLM_F_REQUEST})
	EndMessage(data, 0)
	return s.Exchange(data, func(Message) error { return nil })
}
