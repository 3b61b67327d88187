package nf

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// Table is a table, with a connection of its own. It need not exist.
//
// One goroutine owns a Table: its methods must not be called concurrently. A method whose context ends while the kernel is
// still busy (another process may hold nf_tables' lock for long) returns at once; its request may still take effect.
type Table struct {
	*Conn
	family Family
	name   string
}

// NewTable returns a table over a connection, which is its own. Its name has 1 to MaxNameLen bytes.
func NewTable(c *Conn, family Family, name string) *Table {
	return &Table{Conn: c, family: family, name: name}
}

// Family is the table's family.
func (t *Table) Family() Family { return t.family }

// Name is the table's name.
func (t *Table) Name() string { return t.name }

// Close closes the connection. It removes nothing.
func (t *Table) Close() error { return t.wrap("close", t.Conn.Close()) }

// query asks for an object of the table, or with the name "" for all of a kind.
func (t *Table) query(command int, name string) Query {
	return Query{Command: command, Family: t.family, Table: t.name, Name: name}
}

func (t *Table) wrap(op string, err error) error { return Wrap(op, t.family, t.name, err) }

// consistent returns the result of read, which it calls until no transaction comes in between.
func consistent[T any](ctx context.Context, t *Table, op string, read func() (T, error)) (T, error) {
	var found T
	_, err := t.Do(ctx, func() error {
		return netlink.Retry(ctx, func() error {
			before, err := t.Generation()
			if err == nil {
				found, err = read()
			}
			if err != nil {
				return err
			}
			after, err := t.Generation()
			if err == nil && before != after {
				err = netlink.ErrInterrupted
			}
			return err
		})
	})
	if err != nil {
		var none T
		return none, t.wrap(op, err)
	}
	return found, nil
}

// Objects is what a table holds.
type Objects struct {
	Exists bool
	Chains []Chain
	// Sets are sets and maps, without the anonymous ones that are part of a rule.
	Sets       []Set
	Flowtables []Flowtable
}

// Objects lists what the table holds, except elements and rules. A missing table is not an error.
func (t *Table) Objects(ctx context.Context) (Objects, error) {
	return consistent(ctx, t, "list the table's objects", t.objects)
}

func (t *Table) objects() (o Objects, _ error) {
	exists, err := t.Exists(t.family, t.name)
	if err != nil || !exists {
		return Objects{}, err
	}
	o.Exists = true
	err = t.Chains(t.family, t.name, func(_ string, c Chain) { o.Chains = append(o.Chains, c) })
	if err != nil {
		return Objects{}, err
	}
	err = t.Dump(t.query(unix.NFT_MSG_GETSET, ""), func(m netlink.Message) error {
		if set := decodeSet(m); set.flags&unix.NFT_SET_ANONYMOUS == 0 {
			o.Sets = append(o.Sets, set.Set)
		}
		return nil
	})
	if err != nil {
		return Objects{}, err
	}
	err = t.Dump(t.query(unix.NFT_MSG_GETFLOWTABLE, ""), func(m netlink.Message) error {
		o.Flowtables = append(o.Flowtables, DecodeFlowtable(m))
		return nil
	})
	return o, err
}

// Exists reports whether a table exists.
func (c *Conn) Exists(family Family, table string) (bool, error) {
	err := c.Get(Query{Command: unix.NFT_MSG_GETTABLE, Family: family, Table: table}, nil)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil, err
}

// Dormant reports whether packets do not meet a table's chains. The error is ENOENT without the table.
func (c *Conn) Dormant(family Family, table string) (dormant bool, _ error) {
	err := c.Get(Query{Command: unix.NFT_MSG_GETTABLE, Family: family, Table: table}, func(m netlink.Message) error {
		dormant = m.Attrs().FindUint32(unix.NFTA_TABLE_FLAGS)&tableDormant != 0
		return nil
	})
	return dormant, err
}

// Counters reads the named counters, in no order. Without a table there are none.
func (t *Table) Counters(ctx context.Context) ([]Counter, error) {
	return consistent(ctx, t, "read the counters", t.counters)
}

func (t *Table) counters() (found []Counter, _ error) {
	err := t.Dump(t.query(unix.NFT_MSG_GETOBJ, ""), func(m netlink.Message) error {
		if c, ok := decodeNamedCounter(m); ok {
			found = append(found, c)
		}
		return nil
	})
	if errors.Is(err, unix.ENOENT) { // no table
		return nil, nil
	}
	return found, err
}
