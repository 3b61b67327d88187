package nft

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"
)

// Counter is a named counter of a table, which rules count with (`counter name`).
type Counter struct {
	Name           string
	Packets, Bytes uint64
}

// Counters is part of [Table].
func (t *kernelTable) Counters(ctx context.Context) ([]Counter, error) {
	var found []Counter
	_, err := t.socket.do(ctx, func() error {
		var counters []Counter
		err := t.socket.consistent(ctx, func() (err error) {
			counters, err = t.counters()
			return err
		})
		found = counters
		return err
	})
	if err != nil {
		return nil, wrap("read the counters", t.family, t.name, err)
	}
	return found, nil
}

func (t *kernelTable) counters() (found []Counter, _ error) {
	err := t.dump(unix.NFT_MSG_GETOBJ, unix.NFTA_OBJ_TABLE, func(m message) error {
		if attrString(m, unix.NFTA_OBJ_TABLE) != t.name {
			return nil
		}
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

// decodeNamedCounter decodes a stateful object; ok is false where it is no counter.
func decodeNamedCounter(m message) (c Counter, ok bool) {
	for a := (attrs{rest: m.attrs()}); a.next(); {
		switch a.typ {
		case unix.NFTA_OBJ_NAME:
			c.Name = a.str()
		case unix.NFTA_OBJ_TYPE:
			ok = a.u32() == unix.NFT_OBJECT_COUNTER
		case unix.NFTA_OBJ_DATA:
			c.Packets, c.Bytes = decodeCounts(a.data)
		}
	}
	return c, ok
}

// decodeCounts reads what a counter has counted.
func decodeCounts(data []byte) (packets, octets uint64) {
	for c := (attrs{rest: data}); c.next(); {
		switch c.typ {
		case unix.NFTA_COUNTER_PACKETS:
			packets = c.u64()
		case unix.NFTA_COUNTER_BYTES:
			octets = c.u64()
		}
	}
	return packets, octets
}
