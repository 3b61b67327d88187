//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// prober asks the servers of a laboratory by TCP connections that begin a tenth of a millisecond apart, so that it is
// known to that precision when packets meet a change. Whoever answers says at once which address it was met at.
type prober struct {
	from *netns.Host
	// port is the source port that was last used. They are taken in turn, so that no packet follows the way of an
	// earlier connection.
	port uint16
	open []question
}

// question is a connection on its way.
type question struct {
	fd   int
	sent time.Time
}

// firstPort and lastPort bound the source ports.
const firstPort, lastPort = 2000, 65000

// patience is how long an answer is waited for before it is called missing: well above what a busy machine needs, and
// below the second after which TCP would ask again.
const patience = 400 * time.Millisecond

// spacing is the time between questions. It grows with the time that the answer is waited for, whose relative error it
// bounds at 1 %.
func spacing(elapsed time.Duration) time.Duration {
	return min(max(elapsed/100, 100*time.Microsecond), 5*time.Millisecond)
}

// untilAnswered runs begin, which makes something happen and tells from when on time counts, and asks until an answer
// comes from an address that want accepts, but no longer than the deadline. It gives the time of that answer.
func (p *prober) untilAnswered(to netip.AddrPort, deadline time.Time, begin func() (time.Time, func(netip.Addr) bool)) (took time.Duration, err error) {
	err = p.run(func() error {
		start, want := begin()
		for time.Now().Before(deadline) {
			var met time.Time
			err := p.step(to, spacing(time.Since(start)), func(_ question, by netip.Addr) {
				if by.IsValid() && want(by) && met.IsZero() {
					met = time.Now()
				}
			})
			if err != nil {
				return err
			}
			if !met.IsZero() {
				took = met.Sub(start)
				return nil
			}
		}
		return fmt.Errorf("%v did not answer as it should within %v", to, time.Since(start).Round(time.Millisecond))
	})
	return took, err
}

// untilSilent runs begin and asks until no answers come any more, but no longer than the deadline. It gives the time of the first question that was not
// answered.
func (p *prober) untilSilent(to netip.AddrPort, deadline time.Time, begin func() time.Time) (took time.Duration, err error) {
	err = p.run(func() error {
		start := begin()
		var unanswered []time.Time // when the questions after the last one that was answered were sent
		for time.Now().Before(deadline) {
			unanswered = append(unanswered, time.Now())
			if err := p.step(to, spacing(time.Since(start)), func(q question, by netip.Addr) {
				for by.IsValid() && len(unanswered) > 0 && !unanswered[0].After(q.sent) {
					unanswered = unanswered[1:]
				}
			}); err != nil {
				return err
			}
			if len(unanswered) > 0 && time.Since(unanswered[0]) > patience/2 {
				took = max(0, unanswered[0].Sub(start))
				return nil
			}
		}
		return fmt.Errorf("%v still answers after %v", to, time.Since(start).Round(time.Millisecond))
	})
	return took, err
}

// run calls f in the asker's namespace, and closes what it leaves open.
func (p *prober) run(f func() error) error {
	return p.from.Do(func() error {
		defer func() {
			for _, q := range p.open {
				_ = unix.Close(q.fd)
			}
			p.open = p.open[:0]
		}()
		return f()
	})
}

// step asks once, and takes answers for a while. An answer by nobody is a refusal, or patience that has ended.
func (p *prober) step(to netip.AddrPort, wait time.Duration, answer func(q question, by netip.Addr)) error {
	if err := p.ask(to); err != nil {
		return err
	}
	for end := time.Now().Add(wait); ; {
		left := time.Until(end)
		if left <= 0 {
			return nil
		}
		polled := make([]unix.PollFd, len(p.open))
		for i, q := range p.open {
			polled[i] = unix.PollFd{Fd: int32(q.fd), Events: unix.POLLIN}
		}
		timeout := unix.NsecToTimespec(int64(left))
		if _, err := unix.Ppoll(polled, &timeout, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for answers: %w", err)
		}
		kept := p.open[:0]
		for i, q := range p.open {
			switch {
			case polled[i].Revents != 0:
				answer(q, heard(q.fd))
				_ = unix.Close(q.fd)
			case time.Since(q.sent) > patience:
				answer(q, netip.Addr{})
				_ = unix.Close(q.fd)
			default:
				kept = append(kept, q)
			}
		}
		p.open = kept
	}
}

// ask begins a connection.
func (p *prober) ask(to netip.AddrPort) error {
	fd, err := p.socket(unix.SOCK_NONBLOCK)
	if err != nil {
		return err
	}
	q := question{fd: fd, sent: time.Now()}
	if err := unix.Connect(fd, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		_ = unix.Close(fd)
		return fmt.Errorf("connect to %v: %w", to, err)
	}
	p.open = append(p.open, q)
	return nil
}

// socket makes a TCP socket with the next source port, which is reset when it is closed.
func (p *prober) socket(flags int) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|flags, 0)
	if err != nil {
		return 0, fmt.Errorf("open a socket: %w", err)
	}
	for {
		if p.port++; p.port < firstPort || p.port > lastPort {
			p.port = firstPort
		}
		err := errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
			unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}),
			unix.Bind(fd, &unix.SockaddrInet4{Port: int(p.port)}),
		)
		if errors.Is(err, unix.EADDRINUSE) {
			continue
		}
		if err != nil {
			_ = unix.Close(fd)
			return 0, fmt.Errorf("take the port %d: %w", p.port, err)
		}
		return fd, nil
	}
}

// heard reads who answered: the second field of a laboratory server's line is the address it was met at.
func heard(fd int) netip.Addr {
	var line [256]byte
	n, err := unix.Read(fd, line[:])
	if err != nil || n <= 0 {
		return netip.Addr{}
	}
	fields := bytes.Fields(line[:n])
	if len(fields) < 2 {
		return netip.Addr{}
	}
	met, err := netip.ParseAddrPort(string(fields[1]))
	if err != nil {
		return netip.Addr{}
	}
	return met.Addr()
}
