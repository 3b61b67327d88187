//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed-11a05479/kube-proxy/test/bench/synthetic"
	"github.com/seed-11a05479/kube-proxy/test/netns"
)

// Established traffic is measured on a few pairs of connections, because their place in conntrack's table may matter, and
// on each pair in rounds: round trips of one byte, then packets in one direction.
const (
	trafficPairs, trafficRounds = 8, 25
	roundTrips, burstLength     = 50, 200
	packetLength                = 1400 // bytes; less than the MSS
)

// flow is a long-lived connection. One thread uses both ends, so that no other thread delays a packet.
type flow struct {
	client, server int
	// lossy is whether packets may be lost, as with UDP. What is lost is not measured; a round fails if it loses half.
	lossy bool
	// number is in the first byte of the packets of a round trip or burst: a packet that comes too late has another one.
	number byte
}

// trafficSide is one of the two kinds of connections that are compared, with what it measured.
type trafficSide struct {
	client, server *netns.Host
	to, endpoint   netip.AddrPort
	flows          []flow
	// trips are the times of round trips; packets are, for each burst, the mean time of a packet.
	trips, packets []time.Duration
}

// traffic compares established connections through a Service on node1 with connections that one rule on node2 translates, where
// no proxy runs. The paths are alike: from one pod of the node to another.
func (b *bench) traffic() (err error) {
	if err := b.answers.Close(); err != nil { // it has the port
		return err
	}
	defer func() { err = errors.Join(err, b.serve()) }()
	for _, protocol := range []corev1.Protocol{corev1.ProtocolUDP, corev1.ProtocolTCP} {
		if err := b.trafficOf(protocol); err != nil {
			return fmt.Errorf("%s: %w", protocol, err)
		}
	}
	return nil
}

// trafficOf measures one protocol.
func (b *bench) trafficOf(protocol corev1.Protocol) (err error) {
	number := b.CreateWith(protocol, 1)
	defer b.Delete(number)
	pods, to, endpoint := b.lab.Node2.Pods, synthetic.VIP(number), netip.AddrPortFrom(b.Endpoints(number)[0], synthetic.EndpointPort)
	sides := []*trafficSide{
		{client: b.asker, server: b.server, to: to, endpoint: endpoint},
		{client: pods[1], server: pods[0], to: to, endpoint: endpoint},
	}
	defer func() {
		for _, side := range sides {
			err = errors.Join(err, side.close())
		}
	}()
	err = withDNAT(b.lab.Node2.Host, protocol, to, endpoint, func() error {
		for _, side := range sides {
			if err := side.open(protocol, time.Now().Add(openLimit)); err != nil {
				return err
			}
		}
		if err := b.settle(); err != nil {
			return err
		}
		return exchange(sides)
	})
	if err != nil {
		return err
	}
	service, ruled := sides[0], sides[1]
	prefix := "established " + string(protocol)
	b.run.spread(prefix+", round trip", "µs", service.trips)
	b.run.add(prefix+", packets", "1/s", float64(time.Second)/float64(quantile(service.packets, 0.5)))
	b.compare(prefix+", round trip p50, compared with a single dnat rule", [][]time.Duration{service.trips, ruled.trips}, roundTrips)
	b.compare(prefix+", packets, compared with a single dnat rule", [][]time.Duration{ruled.packets, service.packets}, 1)
	return nil
}

// exchange measures all pairs of flows, first one side and then the other, in alternating order. The first round of each
// pair is not counted.
func exchange(sides []*trafficSide) error {
	for pair := range trafficPairs {
		for round := range trafficRounds + 1 {
			for turn := range sides {
				side := sides[(turn+round)%len(sides)]
				trips, each, err := side.flows[pair].round()
				if err != nil {
					return err
				}
				if round > 0 {
					side.trips, side.packets = append(side.trips, trips...), append(side.packets, each)
				}
			}
		}
	}
	return nil
}

// round measures round trips, and the mean time of each packet of a burst that arrived.
func (f *flow) round() (trips []time.Duration, each time.Duration, err error) {
	for lost := 0; len(trips) < roundTrips; {
		start := time.Now()
		there, err := f.pass(f.client, f.server)
		if err == nil && there {
			there, err = f.pass(f.server, f.client)
		}
		switch {
		case err != nil:
			return nil, 0, err
		case there:
			trips = append(trips, time.Since(start))
		default:
			if lost++; lost == roundTrips/2 {
				return nil, 0, fmt.Errorf("%d round trips were lost, and %d completed", lost, len(trips))
			}
		}
	}
	each, err = f.burst()
	return trips, each, err
}

// pass sends a packet of one byte and reports whether it arrived.
func (f *flow) pass(from, to int) (arrived bool, err error) {
	f.number++
	if err := send(from, []byte{f.number}); err != nil {
		return false, err
	}
	n, err := f.receive(to, make([]byte, 1))
	return n == 1, err
}

// burst sends packets in one direction, as many as the sockets' buffers can hold, and returns the mean time of those that
// arrived. The time that it waits for lost packets does not count.
func (f *flow) burst() (each time.Duration, err error) {
	f.number++
	packet, buffer := make([]byte, packetLength), make([]byte, burstLength*packetLength)
	packet[0] = f.number
	start := time.Now()
	for range burstLength {
		if err := send(f.client, packet); err != nil {
			return 0, err
		}
	}
	arrived, last := 0, start
	for arrived < len(buffer) {
		n, err := f.receive(f.server, buffer[arrived:])
		if err != nil {
			return 0, err
		}
		if n == 0 {
			break
		}
		arrived, last = arrived+n, time.Now()
	}
	packets := arrived / packetLength
	if packets <= burstLength/2 {
		return 0, fmt.Errorf("%d of %d packets of a burst arrived", packets, burstLength)
	}
	return last.Sub(start) / time.Duration(packets), nil
}

func send(fd int, b []byte) error {
	if n, err := unix.Write(fd, b); err != nil || n < len(b) {
		return fmt.Errorf("sent %d of %d bytes: %w", n, len(b), err)
	}
	return nil
}

// receive reads what arrives next. On a lossy flow it ignores packets that are too late, and returns 0 if none arrives.
func (f *flow) receive(fd int, b []byte) (int, error) {
	for {
		n, err := unix.Read(fd, b)
		switch {
		case errors.Is(err, unix.EINTR), f.lossy && n > 0 && b[0] != f.number:
		case f.lossy && errors.Is(err, unix.EAGAIN):
			return 0, nil
		case err == nil && n == 0:
			return 0, io.ErrUnexpectedEOF
		case err != nil:
			return 0, fmt.Errorf("read up to %d bytes: %w", len(b), err)
		default:
			return n, nil
		}
	}
}

// openLimit is the time limit of opening flows: the Service is new, and a proxy may take seconds to program it.
const openLimit = time.Minute

// open opens all flows of a side. It retries until the Service answers.
func (s *trafficSide) open(protocol corev1.Protocol, deadline time.Time) error {
	for len(s.flows) < trafficPairs {
		var f flow
		var err error
		if protocol == corev1.ProtocolTCP {
			f, err = s.dialTCP()
		} else {
			f, err = s.dialUDP()
		}
		switch {
		case err == nil:
			s.flows = append(s.flows, f)
		case time.Now().After(deadline):
			return fmt.Errorf("connect to %v: %w", s.to, err)
		default:
			time.Sleep(10 * time.Millisecond)
		}
	}
	return nil
}

// dialTCP opens a connection. The listening socket exists only meanwhile.
func (s *trafficSide) dialTCP() (f flow, err error) {
	listener, err := socketIn(s.server, unix.SOCK_STREAM, s.endpoint)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, unix.Close(listener)) }()
	if err := unix.Listen(listener, 1); err != nil {
		return f, fmt.Errorf("listen: %w", err)
	}
	if f.client, err = s.connect(unix.SOCK_STREAM); err != nil {
		return f, err
	}
	if f.server, _, err = unix.Accept(listener); err != nil {
		return f, errors.Join(fmt.Errorf("accept: %w", err), unix.Close(f.client))
	}
	for _, fd := range []int{f.client, f.server} {
		err = errors.Join(err, unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1), wait(fd, openLimit))
	}
	return f, err
}

// dialUDP opens a pair of sockets and sends a packet, from which the server learns the client's address.
func (s *trafficSide) dialUDP() (f flow, err error) {
	f.lossy = true
	if f.server, err = socketIn(s.server, unix.SOCK_DGRAM, s.endpoint); err != nil {
		return f, err
	}
	if f.client, err = s.connect(unix.SOCK_DGRAM); err != nil {
		return f, errors.Join(err, unix.Close(f.server))
	}
	err = send(f.client, make([]byte, 1))
	var from unix.Sockaddr
	if err == nil {
		_, from, err = unix.Recvfrom(f.server, make([]byte, 1), 0)
	}
	if err == nil {
		err = unix.Connect(f.server, from)
	}
	if err != nil {
		return f, errors.Join(err, f.close())
	}
	return f, nil
}

// connect opens a socket in the client's namespace and connects it.
func (s *trafficSide) connect(typ int) (int, error) {
	fd, err := socketIn(s.client, typ, netip.AddrPortFrom(netip.IPv4Unspecified(), 0))
	if err != nil {
		return 0, err
	}
	if err := unix.Connect(fd, sockaddr(s.to)); err != nil {
		return 0, errors.Join(fmt.Errorf("connect: %w", err), unix.Close(fd))
	}
	return fd, nil
}

func (f flow) close() error { return errors.Join(unix.Close(f.client), unix.Close(f.server)) }

func (s *trafficSide) close() error {
	var errs []error
	for _, f := range s.flows {
		errs = append(errs, f.close())
	}
	return errors.Join(errs...)
}

// socketIn opens a socket in a host's namespace, bound to an address, with buffers for a burst.
func socketIn(host *netns.Host, typ int, address netip.AddrPort) (fd int, err error) {
	err = host.Do(func() error {
		if fd, err = unix.Socket(unix.AF_INET, typ|unix.SOCK_CLOEXEC, 0); err != nil {
			return fmt.Errorf("open a socket: %w", err)
		}
		const size = 8 * burstLength * packetLength
		err := errors.Join(wait(fd, time.Second),
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, size),
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, size),
			unix.Bind(fd, sockaddr(address)))
		if err != nil {
			return errors.Join(fmt.Errorf("bind to %v: %w", address, err), unix.Close(fd))
		}
		return nil
	})
	return fd, err
}

// wait sets how long a socket waits for a packet or a connection.
func wait(fd int, limit time.Duration) error {
	tv := unix.NsecToTimeval(int64(limit))
	return errors.Join(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &tv))
}

func sockaddr(address netip.AddrPort) *unix.SockaddrInet4 {
	return &unix.SockaddrInet4{Addr: address.Addr().As4(), Port: int(address.Port())}
}
