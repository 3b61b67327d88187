//go:build linux

package netns

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// patience is the clock of probe timeouts. It counts only the time in which the
// machine is not overloaded: an overloaded machine delivers packets late, and a late
// packet must not be reported as dropped. In every tick each CPU must deliver a packet,
// and a goroutine must read one; a tick in which this takes too long does not count.
type patience struct {
	witnesses []*witness
	done      chan struct{} // closed by stop
	limit     time.Duration // the maximum ratio of real time to counted time

	mu      sync.Mutex
	counted time.Duration
	ticking bool
	waiting map[*waiter]struct{}
}

// waiter is a callback that waits for the clock.
type waiter struct {
	until  time.Duration // on the clock
	latest time.Time     // the limit in real time
	run    func()
}

const (
	// patienceTick is the interval of the clock, and also the maximum delay of a tick
	// that counts.
	patienceTick = 10 * time.Millisecond
	// patienceLimit is the limit unless the environment variable PatienceVariable sets another.
	patienceLimit = 20
	// maxProcessors is the size of a unix.CPUSet.
	maxProcessors = 1024
)

// limitOf reads the value of PatienceVariable.
func limitOf(value string) (time.Duration, error) {
	if value == "" {
		return patienceLimit, nil
	}
	limit, err := strconv.ParseUint(value, 10, 16)
	if err != nil || limit == 0 {
		return 0, fmt.Errorf("the environment variable %s is %q: want a ratio from 1 to %d", PatienceVariable, value, math.MaxUint16)
	}
	return time.Duration(limit), nil
}

// newPatience starts a clock with a witness on every CPU that this process may use.
// The witnesses send packets over the loopback of the host.
func newPatience(host *Host) (*patience, error) {
	limit, err := limitOf(os.Getenv(PatienceVariable))
	if err != nil {
		return nil, err
	}
	p := &patience{done: make(chan struct{}), limit: limit, waiting: map[*waiter]struct{}{}}
	var mine unix.CPUSet
	if err := unix.SchedGetaffinity(0, &mine); err != nil {
		return nil, fmt.Errorf("get the CPU affinity: %w", err)
	}
	for cpu := range maxProcessors {
		if mine.IsSet(cpu) {
			w, err := newWitness(host, cpu, p.done)
			if err != nil {
				p.stop()
				return nil, err
			}
			p.witnesses = append(p.witnesses, w)
		}
	}
	w, err := newReader(host, p.done)
	if err != nil {
		p.stop()
		return nil, err
	}
	p.witnesses = append(p.witnesses, w)
	return p, nil
}

// after calls f when the clock has advanced by d. After stop has returned, f is not
// running and will not be called.
func (p *patience) after(d time.Duration, f func()) (stop func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := &waiter{until: p.counted + d, latest: time.Now().Add(p.limit * d), run: f}
	p.waiting[w] = struct{}{}
	if !p.ticking {
		p.ticking = true
		go p.tick()
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.waiting, w)
	}
}

// tick advances the clock while there are waiters.
func (p *patience) tick() {
	for {
		slept := time.Now()
		time.Sleep(patienceTick)
		for _, w := range p.witnesses {
			w.request()
		}
		for _, w := range p.witnesses {
			w.await()
		}
		p.mu.Lock()
		now := time.Now()
		if took := now.Sub(slept); took < 2*patienceTick {
			p.counted += took
		}
		for w := range p.waiting {
			if p.counted >= w.until || now.After(w.latest) {
				delete(p.waiting, w)
				w.run()
			}
		}
		idle := len(p.waiting) == 0
		if idle {
			p.ticking = false
		}
		p.mu.Unlock()
		if idle {
			return
		}
	}
}

// stop ends the witnesses. For remaining waiters the clock continues without them.
func (p *patience) stop() { close(p.done) }

// witness sends a packet to itself on request.
type witness struct {
	requested, arrived, done chan struct{}
}

// newReader returns a witness whose packet is read by a goroutine that waits for it, as
// probes and servers do. In an emulated machine with many connections such goroutines
// were seconds late while the witnesses with threads of their own were in time.
func newReader(host *Host, done chan struct{}) (*witness, error) {
	w := &witness{requested: make(chan struct{}), arrived: make(chan struct{}, 1), done: done}
	socket, err := toItself(host, unix.SOCK_NONBLOCK)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(socket), "witness")
	go func() {
		packet := make([]byte, 1)
		for {
			if _, err := file.Read(packet); errors.Is(err, os.ErrClosed) {
				return
			}
			_ = file.SetReadDeadline(time.Time{}) // until the next request
			select {
			case w.arrived <- struct{}{}:
			case <-done:
				return
			}
		}
	}()
	go func() {
		defer file.Close()
		for {
			select {
			case <-w.requested:
				// As with the threads, a lost packet counts as arrived after a second.
				_ = file.SetReadDeadline(time.Now().Add(time.Second))
				_, _ = file.Write([]byte{0})
			case <-done:
				return
			}
		}
	}()
	return w, nil
}

// newWitness returns a witness that is a thread on one CPU. Its packet arrives after all
// packets that were already queued on this CPU.
func newWitness(host *Host, cpu int, done chan struct{}) (*witness, error) {
	w := &witness{requested: make(chan struct{}), arrived: make(chan struct{}, 1), done: done}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread stays on its CPU
		var only unix.CPUSet
		only.Set(cpu)
		if err := unix.SchedSetaffinity(0, &only); err != nil {
			started <- fmt.Errorf("set the affinity to CPU %d: %w", cpu, err)
			return
		}
		socket, err := toItself(host, 0)
		started <- err
		if err != nil {
			return
		}
		defer unix.Close(socket)
		packet := make([]byte, 1)
		for {
			select {
			case <-w.requested:
			case <-w.done:
				return
			}
			// Errors occur only while the lab is closed, or they affect the
			// probes too, which report them.
			_, _ = unix.Write(socket, packet)
			_, _ = unix.Read(socket, packet)
			w.arrived <- struct{}{}
		}
	}()
	return w, <-started
}

func (w *witness) request() {
	select {
	case w.requested <- struct{}{}:
	case <-w.done:
	}
}

func (w *witness) await() {
	select {
	case <-w.arrived:
	case <-w.done:
	}
}

// toItself returns a UDP socket on the host's loopback that is connected to itself.
func toItself(host *Host, flags int) (socket int, err error) {
	err = host.Do(func() error {
		socket, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|flags, 0)
		return err
	})
	if err != nil {
		return -1, fmt.Errorf("make the witness's socket: %w", err)
	}
	second := unix.NsecToTimeval(time.Second.Nanoseconds())
	if err = unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &second); err == nil {
		err = unix.Bind(socket, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	var name unix.Sockaddr
	if err == nil {
		name, err = unix.Getsockname(socket)
	}
	if err == nil {
		err = unix.Connect(socket, name)
	}
	if err != nil {
		unix.Close(socket)
		return -1, fmt.Errorf("connect the witness's socket: %w", err)
	}
	return socket, nil
}
