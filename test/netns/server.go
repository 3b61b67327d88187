//go:build linux

package netns

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Server answers probes on some ports of a host.
type Server struct {
	mu      sync.Mutex
	open    map[io.Closer]struct{} // sockets and TCP connections
	closed  bool
	leaving atomic.Bool
	working sync.WaitGroup
}

// Serve answers on the ports of the host, on all its current and future addresses of
// both families, until the server or the lab is closed.
//
// An answer is one line: the host's name, the address and port at which it was
// reached, the source address and port that it saw, and the request. A TCP server
// sends it as soon as a connection is established, without a request, and then for
// every line that it receives; a UDP server for every datagram; an SCTP server in the
// cookie of the INIT ACK for every INIT.
func (h *Host) Serve(protocol Protocol, ports ...uint16) (*Server, error) {
	server := &Server{open: map[io.Closer]struct{}{}}
	for _, port := range ports {
		var err error
		switch protocol {
		case TCP:
			err = server.tcp(h, port)
		case UDP:
			err = server.udp(h, port)
		case SCTP:
			err = server.sctp(h, port)
		default:
			err = fmt.Errorf("unknown protocol %q: use TCP, UDP or SCTP", protocol)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("serve %s port %d on %s: %w", protocol, port, h.Name, err), server.Close())
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.servers = append(h.servers, server)
	return server, nil
}

// Close stops the server and resets open connections. When it returns, the ports are
// free and behave like closed ports.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	open := s.open
	s.open = map[io.Closer]struct{}{}
	s.mu.Unlock()
	var errs []error
	for closer := range open {
		if tcp, ok := closer.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		// The connection may be closed concurrently.
		if err := closer.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	s.working.Wait()
	return errors.Join(errs...)
}

// WhileInUse repeats listen while the port is in use, for some seconds: a process that this one has just forked holds its sockets, also closed
// ones, until it executes its program.
func WhileInUse(listen func() error) error {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if err := listen(); !errors.Is(err, unix.EADDRINUSE) || time.Now().After(deadline) {
			return err
		}
	}
}

// Shutdown stops the server as a program that handles SIGTERM does: it accepts no more TCP connections, and closes each after the
// next answer. The returned channel is closed when none is left. UDP and SCTP ports are closed at once.
func (s *Server) Shutdown() <-chan struct{} {
	s.leaving.Store(true)
	s.mu.Lock()
	for closer := range s.open {
		if _, connection := closer.(*net.TCPConn); !connection {
			closer.Close()
			delete(s.open, closer)
		}
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() { defer close(done); s.working.Wait() }()
	return done
}

// keep registers a closer for Close; it returns false if the server is closed.
func (s *Server) keep(closer io.Closer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		closer.Close()
		return false
	}
	s.open[closer] = struct{}{}
	return true
}

func (s *Server) forget(closer io.Closer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, closer)
}

func (s *Server) tcp(h *Host, port uint16) error {
	var listener net.Listener
	err := WhileInUse(func() (err error) {
		listener, err = h.Listen("tcp", fmt.Sprintf(":%d", port))
		return err
	})
	if err != nil {
		return err
	}
	s.keep(listener)
	s.working.Go(func() {
		for {
			connection, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				continue // the connection was reset before it was accepted
			}
			if s.keep(connection) {
				s.working.Go(func() {
					defer s.forget(connection)
					defer connection.Close()
					s.talk(h.Name, connection)
				})
			}
		}
	})
	return nil
}

// talk answers on a TCP connection until the peer closes it, or the server leaves.
func (s *Server) talk(name string, connection net.Conn) {
	answer := line{
		endpoint: name,
		reached:  addrPort(connection.LocalAddr().(*net.TCPAddr).AddrPort()),
		source:   addrPort(connection.RemoteAddr().(*net.TCPAddr).AddrPort()),
	}
	if _, err := io.WriteString(connection, answer.String()); err != nil {
		return
	}
	for lines := bufio.NewScanner(connection); lines.Scan(); {
		answer.asked = lines.Text()
		if _, err := io.WriteString(connection, answer.String()); err != nil || s.leaving.Load() {
			return
		}
	}
}

// udp answers on one socket per family. It sends each answer from the address to
// which the datagram was sent.
func (s *Server) udp(h *Host, port uint16) error {
	for _, family := range Families() {
		listener, err := listenWithAddress(h, fmt.Sprintf("udp%d", family), fmt.Sprintf(":%d", port))
		if err != nil {
			return err
		}
		socket := listener.(*net.UDPConn)
		s.keep(socket)
		s.working.Go(func() {
			question, control := make([]byte, 512), make([]byte, 128)
			for {
				n, controls, _, source, err := socket.ReadMsgUDPAddrPort(question, control)
				if errors.Is(err, net.ErrClosed) {
					return
				}
				destination, back := metAt(control[:controls])
				if err != nil || !destination.IsValid() {
					continue // an ICMP error for an earlier answer
				}
				answer := line{
					endpoint: h.Name, reached: netip.AddrPortFrom(destination, port),
					source: addrPort(source), asked: strings.TrimSpace(string(question[:n])),
				}
				_, _, _ = socket.WriteMsgUDPAddrPort([]byte(answer.String()), back, source)
			}
		})
	}
	return nil
}

// listenWithAddress opens a packet socket that reports the destination address of
// every packet.
func listenWithAddress(h *Host, network, address string) (socket net.PacketConn, err error) {
	config := net.ListenConfig{Control: func(network, _ string, raw syscall.RawConn) error {
		var setting error
		err := raw.Control(func(fd uintptr) {
			if strings.HasPrefix(network, "udp4") || strings.HasPrefix(network, "ip4") {
				setting = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_PKTINFO, 1)
			} else {
				setting = unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_RECVPKTINFO, 1)
			}
		})
		return errors.Join(err, setting)
	}}
	err = h.Do(func() error {
		socket, err = config.ListenPacket(context.Background(), network, address)
		return err
	})
	return socket, err
}

// metAt returns the destination address from a packet's control message, and the
// control message that makes it the source address of the answer.
func metAt(control []byte) (netip.Addr, []byte) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return netip.Addr{}, nil
	}
	for _, message := range messages {
		switch {
		case message.Header.Level == unix.SOL_IP && message.Header.Type == unix.IP_PKTINFO && len(message.Data) >= unix.SizeofInet4Pktinfo:
			address := [4]byte(message.Data[8:12]) // ipi_addr
			return netip.AddrFrom4(address), unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: address})
		case message.Header.Level == unix.SOL_IPV6 && message.Header.Type == unix.IPV6_PKTINFO && len(message.Data) >= unix.SizeofInet6Pktinfo:
			address := [16]byte(message.Data[:16]) // ipi6_addr
			return netip.AddrFrom16(address), unix.PktInfo6(&unix.Inet6Pktinfo{Addr: address})
		}
	}
	return netip.Addr{}, nil
}

// sctpResponder answers for all SCTP ports of a host, because a raw socket receives
// the packets of all ports. It answers for closed ports with ABORT, like a host with
// SCTP; a host without a responder sends ICMP errors.
type sctpResponder struct {
	mu    sync.Mutex
	ports map[uint16]bool
}

// sctpPort is an open port of the responder.
type sctpPort struct {
	responder *sctpResponder
	port      uint16
}

// Close stops serving the port.
func (p sctpPort) Close() error {
	p.responder.mu.Lock()
	defer p.responder.mu.Unlock()
	delete(p.responder.ports, p.port)
	return nil
}

func (s *Server) sctp(h *Host, port uint16) error {
	responder, err := h.sctpResponder()
	if err != nil {
		return err
	}
	responder.mu.Lock()
	defer responder.mu.Unlock()
	if responder.ports[port] {
		return unix.EADDRINUSE
	}
	responder.ports[port] = true
	s.keep(sctpPort{responder, port})
	return nil
}

// sctpResponder returns the host's responder, which it starts on the first call.
func (h *Host) sctpResponder() (*sctpResponder, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sctp != nil {
		return h.sctp, nil
	}
	protocols, err := os.ReadFile("/proc/net/protocols")
	if err != nil {
		return nil, fmt.Errorf("read the kernel's protocols: %w", err)
	}
	if bytes.Contains(protocols, []byte("\nSCTP ")) {
		return nil, errors.New("the kernel's SCTP module would reject connections to the lab's servers: unload it (modprobe -r sctp)")
	}
	responder := &sctpResponder{ports: map[uint16]bool{}}
	sockets := &Server{open: map[io.Closer]struct{}{}}
	for network, wildcard := range map[string]string{"ip4:132": "0.0.0.0", "ip6:132": "::"} {
		listener, err := listenWithAddress(h, network, wildcard)
		if err != nil {
			return nil, errors.Join(err, sockets.Close())
		}
		sockets.keep(listener)
		sockets.working.Go(func() { responder.answer(h.Name, listener.(*net.IPConn), wildcard == "0.0.0.0") })
	}
	h.servers = append(h.servers, sockets)
	h.sctp = responder
	return responder, nil
}

// answer answers the packets of one raw socket until it is closed.
func (r *sctpResponder) answer(name string, socket *net.IPConn, four bool) {
	packet, control := make([]byte, 2048), make([]byte, 128)
	for {
		n, controls, _, from, err := socket.ReadMsgIP(packet, control)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		destination, back := metAt(control[:controls])
		if err != nil || !destination.IsValid() {
			continue
		}
		body := packet[:n]
		if four {
			if body, err = stripIPv4(body); err != nil {
				continue
			}
		}
		source, _ := netip.AddrFromSlice(from.IP)
		asked, err := decodeSCTP(body)
		if err != nil {
			continue // RFC 9260 section 6.8: a packet with a wrong checksum is discarded
		}
		if reply, ok := r.reply(name, asked, destination, source.Unmap()); ok {
			_, _, _ = socket.WriteMsgIP(reply.encode(), back, from)
		}
	}
}

// reply returns the answer to a packet, if any.
func (r *sctpResponder) reply(name string, asked sctpPacket, destination, source netip.Addr) (sctpPacket, bool) {
	reply := sctpPacket{source: asked.destination, destination: asked.source, tag: asked.initiate}
	r.mu.Lock()
	served := r.ports[asked.destination]
	r.mu.Unlock()
	switch {
	case asked.chunk != sctpInit:
		return sctpPacket{}, false
	case !served:
		reply.chunk = sctpAbort
	default:
		reply.chunk = sctpInitAck
		reply.initiate = 1 + rand.Uint32N(1<<32-1)
		reply.cookie = []byte(line{
			endpoint: name,
			reached:  netip.AddrPortFrom(destination, asked.destination),
			source:   netip.AddrPortFrom(source, asked.source),
		}.String())
	}
	return reply, true
}

// addrPort unmaps an IPv4-mapped IPv6 address.
func addrPort(address netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(address.Addr().Unmap(), address.Port())
}
