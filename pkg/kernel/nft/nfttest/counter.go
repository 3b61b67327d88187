package nfttest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
)

// fakeCounter is a named counter.
type fakeCounter struct {
	packets, bytes uint64
	// users counts the rules that count with it.
	users int
}

func (s *fakeState) runCounter(c command, name string) error {
	if err := s.needTable(); err != nil {
		return err
	}
	counters := s.table.counters
	old := counters[name]
	switch c.verb {
	case "add", "create":
		if old != nil && c.verb == "create" {
			return refuse(unix.EEXIST, "counter %s", name)
		}
		if old != nil {
			return nil // and the generation stays
		}
		counters[name] = &fakeCounter{}
		s.did(func() { delete(counters, name) })
		s.note(nf.OtherObject, name, "")
	case "delete":
		if old == nil {
			return refuse(unix.ENOENT, "no counter %s", name)
		}
		if old.users > 0 {
			return refuse(unix.EBUSY, "counter %s is in use", name)
		}
		delete(counters, name)
		s.did(func() { counters[name] = old })
		s.note(nf.OtherObject, name, "")
	default:
		return c.unknown()
	}
	return nil
}

func (c *fakeCounter) dump(b *strings.Builder, name string, o dumpOptions) {
	fmt.Fprintf(b, "\tcounter %s {\n", name)
	if !o.skeleton {
		fmt.Fprintf(b, "\t\tpackets %d bytes %d\n", c.packets, c.bytes)
	}
	b.WriteString("\t}\n")
}

// Counters is part of [nft.Table].
func (f *Fake) Counters(ctx context.Context) ([]nft.Counter, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.mayRead(ctx); err != nil {
		return nil, f.wrap("read the counters", err)
	}
	if f.state.table == nil {
		return nil, nil
	}
	var found []nft.Counter
	for name, c := range f.state.table.counters {
		found = append(found, nft.Counter{Name: name, Packets: c.packets, Bytes: c.bytes})
	}
	slices.SortFunc(found, func(a, b nft.Counter) int { return cmp.Compare(a.Name, b.Name) })
	return found, nil
}
