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

// prober sends TCP connections to the servers of a lab, in intervals that give the precision of the time of a change: see
// spacing. A server reports at once the address at which it was reached.
type prober struct {
	from *netns.Host
	// port is the last source port. The ports are used in turn, so that no connection reuses the conntrack entry of an
	// earlier one.
	port uint16
	open []attempt
	// alive returns an error if the proxy has exited: no answer is awaited from it. It is nil if no proxy has been started.
	alive func() error
}

// attempt is a connection without an answer so far.
type attempt struct {
	fd   int
	sent time.Time
}

// firstPort and lastPort bound the source ports.
const firstPort, lastPort = 2000, 65000

// answerTimeout is the timeout of an answer: well above what a busy machine needs, and below the second after which TCP
// retransmits the SYN.
const answerTimeout = 400 * time.Millisecond

// silence is how long no connection must be answered for a Service to count as removed.
const silence = answerTimeout / 2

// spacing returns the time between connections: 1 % of the time waited so far, at least 0.1 ms and at most 5 ms. A time below
// 10 ms has therefore an error of 0.1 ms, one up to half a second an error of 1 %.
func spacing(elapsed time.Duration) time.Duration {
	return min(max(elapsed/100, 100*time.Microsecond), 5*time.Millisecond)
}

// untilAnswered calls begin, which triggers a change and returns the start time, and opens connections until an answer
// comes from an address that want accepts, the proxy exits or the deadline passes. It returns the time of that answer.
func (p *prober) untilAnswered(to netip.AddrPort, deadline time.Time, begin func() (time.Time, func(netip.Addr) bool)) (took time.Duration, err error) {
	err = p.run(func() error {
		start, want := begin()
		for time.Now().Before(deadline) {
			if err := p.exited(); err != nil {
				return err
			}
			var met time.Time
			err := p.step(to, spacing(time.Since(start)), func(_ attempt, by netip.Addr) {
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
		return fmt.Errorf("no expected answer from %v within %v", to, time.Since(start).Round(time.Millisecond))
	})
	return took, err
}

// untilSilent calls begin and opens connections until no more answers come, the proxy exits or the deadline passes. It returns
// the time of the first connection that was not answered, and neither was any after it.
func (p *prober) untilSilent(to netip.AddrPort, deadline time.Time, begin func() time.Time) (took time.Duration, err error) {
	err = p.run(func() error {
		start := begin()
		var unanswered []time.Time // start times of the connections after the last answered one
		for time.Now().Before(deadline) {
			if err := p.exited(); err != nil {
				return err
			}
			unanswered = append(unanswered, time.Now())
			if err := p.step(to, spacing(time.Since(start)), func(q attempt, by netip.Addr) {
				for by.IsValid() && len(unanswered) > 0 && !unanswered[0].After(q.sent) {
					unanswered = unanswered[1:]
				}
			}); err != nil {
				return err
			}
			if len(unanswered) > 0 && time.Since(unanswered[0]) > silence {
				took = max(0, unanswered[0].Sub(start))
				return nil
			}
		}
		return fmt.Errorf("%v still answers after %v", to, time.Since(start).Round(time.Millisecond))
	})
	return took, err
}

// exited returns an error if the proxy has exited.
func (p *prober) exited() error {
	if p.alive == nil {
		return nil
	}
	return p.alive()
}

// run calls f in the client's namespace, and closes the connections that it leaves open.
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

// step opens one connection and receives answers for a while. An answer without an address means that the connection was
// refused or timed out.
func (p *prober) step(to netip.AddrPort, wait time.Duration, answer func(q attempt, by netip.Addr)) error {
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
				answer(q, answerer(q.fd))
				_ = unix.Close(q.fd)
			case time.Since(q.sent) > answerTimeout:
				answer(q, netip.Addr{})
				_ = unix.Close(q.fd)
			default:
				kept = append(kept, q)
			}
		}
		p.open = kept
	}
}

// ask starts a connection.
func (p *prober) ask(to netip.AddrPort) error {
	fd, err := p.socket(unix.SOCK_NONBLOCK)
	if err != nil {
		return err
	}
	q := attempt{fd: fd, sent: time.Now()}
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
			return 0, fmt.Errorf("bind to port %d: %w", p.port, err)
		}
		return fd, nil
	}
}

// answerer returns the address of the endpoint that answered: the second field of the server's line is the address at which
// it was reached.
func answerer(fd int) netip.Addr {
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
