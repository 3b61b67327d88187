//go:build linux

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed-11a05479/kube-proxy/test/bench/synthetic"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// Connect times are compared in rounds, after a warm-up round. A temporary load on the machine then affects only a few
// rounds, and in a round both kinds of connections equally, because they alternate.
const connectRounds, connectsEach = 100, 100

// connectTime compares connections to a Service with direct connections from the same pod to the same endpoints, which
// pass through the same node and its rules.
func (b *bench) connectTime() error {
	service, direct := b.connectTargets()
	took, err := b.alternate(service, direct)
	if err != nil {
		return err
	}
	b.run.spread("connect", "µs", took[0])
	b.run.spread("connect directly", "µs", took[1])
	b.compare("connect p50, compared with direct", took, connectsEach)
	return nil
}

// connectFloor measures the same without a proxy: a direct connection when no rule has enabled connection tracking, and a
// connection through a minimal Service, a single rule that translates one address to one endpoint.
func (b *bench) connectFloor() error {
	service, direct := b.connectTargets()
	took, err := b.alternate(direct)
	if err != nil {
		return err
	}
	b.run.spread("connect directly, no rules at all", "µs", took[0])
	return withDNAT(b.node, corev1.ProtocolTCP, service(0), direct(0), func() error {
		took, err := b.alternate(service, direct)
		if err == nil {
			b.compare("connect p50, a single dnat rule, compared with direct", took, connectsEach)
		}
		return err
	})
}

// withDNAT calls do while a node has a minimal Service: a single rule, which translates one address and port.
func withDNAT(node *netns.Host, protocol corev1.Protocol, from, to netip.AddrPort, do func() error) error {
	const rule = `table ip bench { chain c { type nat hook prerouting priority dstnat; ip daddr %v %s dport %d dnat to %v; }; }`
	if out, err := node.Command("nft", fmt.Sprintf(rule, from.Addr(), strings.ToLower(string(protocol)), from.Port(), to)).CombinedOutput(); err != nil {
		return fmt.Errorf("nft: add a rule: %w: %s", err, out)
	}
	err := do()
	if out, deleted := node.Command("nft", "delete table ip bench").CombinedOutput(); deleted != nil {
		err = errors.Join(err, fmt.Errorf("nft: delete a table: %w: %s", deleted, out))
	}
	return err
}

// connectTargets returns pairs of a Service and one of its endpoints.
func (b *bench) connectTargets() (service, direct func(turn int) netip.AddrPort) {
	number := b.Size().Services / 2
	endpoints := b.Endpoints(number)
	return func(int) netip.AddrPort { return synthetic.VIP(number) },
		func(turn int) netip.AddrPort {
			return netip.AddrPortFrom(endpoints[turn%len(endpoints)], synthetic.EndpointPort)
		}
}

// compare adds the ratio of two kinds of connections, which were measured in rounds of the given size. It is the median of
// the rounds' ratios of medians. It also adds its standard error, estimated from the quartiles as if the rounds' ratios were
// normally distributed.
func (b *bench) compare(name string, took [][]time.Duration, each int) {
	ratio, uncertainty := ratioOfRounds(took[0], took[1], each)
	b.run.add(name, "times", ratio)
	b.run.add(name+", ±", "%", 100*uncertainty/ratio)
}

// alternate measures the connect times to each of several addresses. Meanwhile no server accepts the connections: the
// kernel completes the handshake, and the connections are closed between the rounds.
func (b *bench) alternate(to ...func(turn int) netip.AddrPort) (took [][]time.Duration, err error) {
	queue, err := b.stopAccepting()
	if err != nil {
		return nil, err
	}
	took = make([][]time.Duration, len(to))
	for round := range connectRounds + 1 {
		all, err := b.prober.connects(connectsEach, to...)
		if err == nil {
			err = empty(queue)
		}
		if err != nil {
			return nil, errors.Join(err, b.startAccepting(queue))
		}
		for i := range to {
			if round > 0 {
				took[i] = append(took[i], all[i]...)
			}
		}
	}
	return took, b.startAccepting(queue)
}

// stopAccepting replaces the server by sockets that listen but do not accept.
func (w *world) stopAccepting() (queue int, err error) {
	if err := w.answers.Close(); err != nil {
		return 0, err
	}
	err = w.server.Do(func() error {
		if queue, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
			return fmt.Errorf("open a socket: %w", err)
		}
		if err := unix.SetsockoptInt(queue, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return err
		}
		err = netns.WhileInUse(func() error { return unix.Bind(queue, &unix.SockaddrInet4{Port: synthetic.EndpointPort}) })
		return errors.Join(err, unix.Listen(queue, 4*connectsEach))
	})
	return queue, err
}

// startAccepting restarts the server after stopAccepting.
func (w *world) startAccepting(queue int) error {
	if err := unix.Close(queue); err != nil {
		return err
	}
	return w.serve()
}

// empty accepts and closes the connections that wait at a socket.
func empty(queue int) error {
	for {
		fd, _, err := unix.Accept(queue)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case errors.Is(err, unix.EINTR) || errors.Is(err, unix.ECONNABORTED):
			continue
		case err != nil:
			return fmt.Errorf("accept: %w", err)
		}
		_ = unix.Close(fd)
	}
}

// connects measures the connect times to each of several addresses, alternately and one at a time.
func (p *prober) connects(times int, to ...func(turn int) netip.AddrPort) (took [][]time.Duration, err error) {
	took = make([][]time.Duration, len(to))
	err = p.run(func() error {
		for turn := range times * len(to) {
			// Each address is first equally often: 0 1, 1 0, 0 1 and so on.
			i := (turn + turn/len(to)) % len(to)
			fd, err := p.socket(0)
			if err != nil {
				return err
			}
			address := to[i](turn / len(to) / 2)
			start := time.Now()
			err = unix.Connect(fd, &unix.SockaddrInet4{Addr: address.Addr().As4(), Port: int(address.Port())})
			took[i] = append(took[i], time.Since(start))
			_ = unix.Close(fd)
			if err != nil {
				return fmt.Errorf("connect to %v: %w", address, err)
			}
		}
		return nil
	})
	return took, err
}
