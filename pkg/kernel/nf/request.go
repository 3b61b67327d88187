package nf

import (
	"bytes"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// Query is what a request asks for: an object, or all of a kind.
type Query struct {
	// Command is an NFT_MSG_GET*.
	Command int
	Family  Family // 0 is all
	Table   string // "" is all
	// Name is that of an object in the table, of a rule's chain, or of an element's set; "" is all.
	Name string
	// More are further attributes.
	More []byte
}

func (q *Query) header() netlink.Header { return header(q.Command, 0, q.Family) }

func (q *Query) appendTo(b []byte) []byte {
	if q.Table != "" {
		b = netlink.AppendString(b, attrTable, q.Table)
	}
	if q.Name != "" {
		b = netlink.AppendString(b, nameAttr(q.Command), q.Name)
	}
	return append(b, q.More...)
}

// Get asks for an object. answer, which may be nil, is called with it; if there is none, the error is ENOENT.
//
// Requests other than in [Conn.Do] are made at once, on the goroutine of the caller: they wait for whoever holds nf_tables' lock.
func (c *Conn) Get(q Query, answer func(netlink.Message) error) error {
	return c.Socket.Get(q.header(), q.appendTo, answer)
}

// Dump asks for all objects of a kind. The kernel also sends those of other tables: they are skipped. If others write meanwhile, the
// error is mostly [netlink.ErrInterrupted].
func (c *Conn) Dump(q Query, visit func(netlink.Message) error) error {
	return c.Socket.Dump(q.header(), q.appendTo, func(m netlink.Message) error {
		if q.Table != "" && string(textOf(m.Attr(attrTable))) != q.Table {
			return nil
		}
		return visit(m)
	})
}

// textOf returns an attribute with a string without its final NUL.
func textOf(v []byte) []byte { return bytes.TrimSuffix(v, []byte{0}) }

// Generation is the number of transactions that nf_tables has seen in a network namespace, modulo 2³²; it is never 0.
type Generation uint32

// Since returns the number of transactions since an earlier reading.
func (g Generation) Since(earlier Generation) uint32 {
	n := uint32(g - earlier)
	if g < earlier {
		n-- // the kernel skips 0
	}
	return n
}

// After reports whether a generation is later than another one.
func (g Generation) After(o Generation) bool {
	n := g.Since(o)
	return n != 0 && n < 1<<31
}

// Generation reads the number of the last transaction.
func (c *Conn) Generation() (g Generation, _ error) {
	err := c.Get(Query{Command: unix.NFT_MSG_GETGEN}, func(m netlink.Message) error {
		g, _, _ = ReadGeneration(m)
		return nil
	})
	return g, err
}

// ReadGeneration reads the message at the end of each transaction, NFT_MSG_NEWGEN: the number that the transaction led to, and
// the name, at most 15 bytes, and the process id of the program that made it.
func ReadGeneration(m netlink.Message) (number Generation, program string, process int) {
	for a := m.Attrs(); a.Next(); {
		switch a.Type {
		case unix.NFTA_GEN_ID:
			number = Generation(a.Uint32())
		case unix.NFTA_GEN_PROC_NAME:
			program = a.String()
		case unix.NFTA_GEN_PROC_PID:
			process = int(a.Uint32())
		}
	}
	return number, program, process
}
