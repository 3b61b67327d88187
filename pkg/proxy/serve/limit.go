package serve

import (
	"context"
	"net"
	"net/http"
	"net/netip"
)

const (
	// receiveBuffer is what the kernel may keep of a client's requests, in bytes: they have no body.
	receiveBuffer = 8 << 10
	// sitePrefix is how many bits of an IPv6 address name a source: its other bits are free to choose.
	sitePrefix = 64
)

// Limit bounds the connections of some listeners together. New ones are always accepted: if there are too many, one of the source that
// has the most is reset. (netutil.LimitListener makes new clients wait until the old ones end.)
type Limit struct {
	// Most is the number of connections.
	Most int
	// SendBuffer is what the kernel keeps of a response for a client that does not read, in bytes.
	SendBuffer int
	// User returns the user of this machine that opened a connection; an error if it is not known. It may be nil.
	User func(client, server netip.AddrPort) (uint32, error)
	// Closed is called when a connection was reset to make room.
	Closed func()

	open shares
}

// Source is who opens connections: a user of this machine, an IPv4 address, or an IPv6 network. A user may have many addresses, and one
// user must not take what the kubelet and operators need.
type Source struct {
	network netip.Prefix
	local   bool
	user    uint32
}

// Listener returns a listener whose connections count.
func (l *Limit) Listener(listener net.Listener) net.Listener { return &limitedListener{listener, l} }

type limitedListener struct {
	net.Listener
	limit *Limit
}

// Accept accepts a connection, and resets another one if there are too many.
func (l *limitedListener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: accepted, limit: l.limit}
	c.part = part{source: l.limit.sourceOf(accepted), size: 1, giveUp: c.reset}
	if tcp, ok := accepted.(*net.TCPConn); ok { // an error means that the client is gone: reading reports it
		_ = tcp.SetReadBuffer(receiveBuffer)
		_ = tcp.SetWriteBuffer(l.limit.SendBuffer)
	}
	l.limit.open.add(&c.part, l.limit.Most)
	return c, nil
}

// connection is a connection that counts until it is closed.
type connection struct {
	net.Conn
	limit *Limit
	part  part
}

// Close closes the connection.
func (c *connection) Close() error {
	c.limit.open.remove(&c.part)
	return c.Conn.Close()
}

// reset closes the connection to make room, and lets the kernel forget at once what the client has not read.
func (c *connection) reset() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Conn.Close()
	c.limit.Closed()
}

// sourceOf returns who opened a connection. Clients of other networks than TCP are one source.
func (l *Limit) sourceOf(c net.Conn) Source {
	client, server := addrPortOf(c.RemoteAddr()), addrPortOf(c.LocalAddr())
	addr := client.Addr()
	if l.User != nil && (addr.IsLoopback() || addr.IsValid() && addr == server.Addr()) {
		if user, err := l.User(client, server); err == nil { // a client that is gone has none
			return Source{local: true, user: user}
		}
	}
	network, _ := addr.WithZone("").Prefix(min(addr.BitLen(), sitePrefix)) // the zero Prefix without an address
	return Source{network: network}
}

// addrPortOf returns a TCP address; the zero AddrPort for others.
func addrPortOf(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(tcp.AddrPort().Addr().Unmap(), tcp.AddrPort().Port())
}

// observe records whether a connection is idle: a request was answered, and the next one has not begun. It is the ConnState of a server.
func observe(c net.Conn, state http.ConnState) {
	if c, ok := c.(*connection); ok {
		c.limit.open.mu.Lock()
		defer c.limit.open.mu.Unlock()
		c.part.idle = state == http.StateIdle
	}
}

type sourceKey struct{}

// withSource keeps the source of a connection for its requests. It is the ConnContext of a server.
func withSource(ctx context.Context, c net.Conn) context.Context {
	if c, ok := c.(*connection); ok {
		return context.WithValue(ctx, sourceKey{}, c.part.source)
	}
	return ctx
}

// SourceOf returns who sent a request; the zero Source if its server has no Limit.
func SourceOf(r *http.Request) Source {
	source, _ := r.Context().Value(sourceKey{}).(Source)
	return source
}
