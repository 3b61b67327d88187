//go:build linux

package selfcall

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// long is a time that no test waits for.
const long = time.Minute

func listening(t *testing.T) *Listeners {
	t.Helper()
	l, err := Listen("tcp4", "tcp6")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// TestCall calls itself, in both families at once and again, also if others have called before.
func TestCall(t *testing.T) {
	l := listening(t)
	other, err := net.Dial("tcp", l.Addresses()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for range 100 {
		if errs := l.Call(l.Addresses(), long); errors.Join(errs...) != nil || len(errs) != 2 {
			t.Fatal(errs)
		}
	}
	if errs := l.Call(nil, long); len(errs) != 0 {
		t.Error(errs)
	}
}

// TestCrowd calls itself while more connections of others wait than the kernel accepts for most programs.
func TestCrowd(t *testing.T) {
	l := listening(t)
	for range 200 {
		other, err := net.Dial("tcp", l.Addresses()[0].String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { other.Close() })
	}
	if errs := l.Call(l.Addresses(), long); errors.Join(errs...) != nil {
		t.Error(errs)
	}
}

// TestFailures calls what refuses, what never answers, another program, and what cannot be called, together with itself.
func TestFailures(t *testing.T) {
	l, foreign := listening(t), listening(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	done := make(chan bool)
	defer func() { done <- true }()
	go func() {
		for {
			foreign.answer()
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	closed := listening(t)
	refuses := closed.Addresses()[1]
	closed.Close()
	to := []netip.AddrPort{l.Addresses()[0], refuses, foreign.Addresses()[0], silent.Addr().(*net.TCPAddr).AddrPort(), netip.MustParseAddrPort("[fe80::1]:1"), l.Addresses()[1]}
	want := []error{nil, unix.ECONNREFUSED, ErrForeign, unix.ETIMEDOUT, unix.EINVAL, nil}
	errs := l.Call(to, 2*time.Second)
	for i := range to {
		if !errors.Is(errs[i], want[i]) || (errs[i] == nil) != (want[i] == nil) {
			t.Errorf("%s: %v, want %v", to[i], errs[i], want[i])
		}
	}
}

// TestUnrouted has an address with a route, and one without.
func TestUnrouted(t *testing.T) {
	if err := Unrouted(netip.MustParseAddrPort("127.0.0.1:1")); err != nil {
		t.Error(err)
	}
	if err := Unrouted(netip.MustParseAddrPort("[fe80::1]:1")); !errors.Is(err, unix.EINVAL) { // it lacks its interface
		t.Error(err)
	}
}

// TestLeavesNothing checks that no descriptor is left.
func TestLeavesNothing(t *testing.T) {
	next := func() int {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(fd)
		return fd
	}
	before := next()
	for range 20 {
		l, err := Listen("tcp4")
		if err != nil {
			t.Fatal(err)
		}
		to := append(l.Addresses(), netip.MustParseAddrPort("[fe80::1]:1"))
		l.Call(to, long)
		l.Close()
	}
	if after := next(); after > before+2 {
		t.Errorf("the next descriptor was %d and is %d", before, after)
	}
}
