package netlink

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestDrainEnds has somebody send as fast as Drain reads.
func TestDrainEnds(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[1])
	s := &Socket{fd: pair[0], answer: make([]byte, receiveBuffer)}
	defer s.Close()
	message := AppendMessage(nil, Header{Type: unix.NLMSG_NOOP})
	EndMessage(message, 0)
	send := func(Message) {
		if err := unix.Send(pair[1], message, 0); err != nil {
			t.Fatal(err)
		}
	}
	send(Message{})
	for range 2 {
		read := 0
		lost, err := s.Drain(func(m Message) {
			if read++; read > 10*maxDrained {
				t.Fatal("it does not end")
			}
			send(m)
		})
		if lost || err != nil || read == 0 {
			t.Errorf("read %d messages, lost %t: %v", read, lost, err)
		}
	}
}
