package nft

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// Counter is a named counter of a table, which rules count with (`counter name`).
type Counter struct {
	Name           string
	Packets, Bytes uint64
}

// CounterSize returns the memory that the kernel allocates for one counter, in bytes: for each processor that the machine may
// have, struct nft_counter, which is two numbers of 64 bits.
func CounterSize(possibleCPUs int) int { return 16 * possibleCPUs }

// Counters is part of [Table].
func (t *kernelTable) Counters(ctx context.Context) ([]Counter, error) {
	return consistent(ctx, t, "read the counters", t.counters)
}

func (t *kernelTable) counters() (found []Counter, _ error) {
	err := t.dump(unix.NFT_MSG_GETOBJ, unix.NFTA_OBJ_TABLE, func(m netlink.Message) error {
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

// decodeNamedCounter decodes a stateful object; ok is false if it is not a counter.
func decodeNamedCounter(m netlink.Message) (c Counter, ok bool) {
	for a := m.Attrs(); a.Next(); {
		switch a.Type {
		case unix.NFTA_OBJ_NAME:
			c.Name = a.String()
		case unix.NFTA_OBJ_TYPE:
			ok = a.Uint32() == unix.NFT_OBJECT_COUNTER
		case unix.NFTA_OBJ_DATA:
			c.Packets, c.Bytes = decodeCounts(a.Data)
		}
	}
	return c, ok
}

// decodeCounts decodes the numbers of a counter.
func decodeCounts(data []byte) (packets, octets uint64) {
	for c := netlink.ReadAttrs(data); c.Next(); {
		switch c.Type {
		case unix.NFTA_COUNTER_PACKETS:
			packets = c.Uint64()
		case unix.NFTA_COUNTER_BYTES:
			octets = c.Uint64()
		}
	}
	return packets, octets
}
