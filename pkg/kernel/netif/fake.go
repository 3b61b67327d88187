package netif

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
)

// Fake is an Interfaces whose addresses are what a test says. Like the kernel it sorts, leaves out what no
// packet can be sent to, and may fail.
type Fake struct {
	mu       sync.Mutex
	addrs    []netip.Addr
	failures int
	watchers []chan struct{}
}

// NewFake makes a machine with these addresses.
func NewFake(addrs ...netip.Addr) *Fake { return &Fake{addrs: addrs} }

var _ Interfaces = (*Fake)(nil)

// Set gives the machine other addresses and tells all watchers.
func (f *Fake) Set(addrs ...netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.addrs = slices.Clone(addrs)
	for _, changed := range f.watchers {
		notify(changed)
	}
}

// Fail makes the next listings fail.
func (f *Fake) Fail(times int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failures = times
}

// Addrs implements Interfaces.
func (f *Fake) Addrs() ([]netip.Addr, error) {
	return f.list(func(a address) bool { return !a.addr.IsLinkLocalUnicast() || a.addr.Is4() })
}

// NodeAddrs implements Interfaces. The first address of each family that Set was given is the primary one.
func (f *Fake) NodeAddrs() ([]netip.Addr, error) {
	addrs, err := f.list(func(a address) bool { return a.addr.IsGlobalUnicast() })
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return primaryFirst(addrs, func(there netip.Addr) (netip.Addr, bool) {
		at := slices.IndexFunc(f.addrs, func(a netip.Addr) bool { return a.Is4() == there.Is4() && a.IsGlobalUnicast() })
		if at < 0 {
			return netip.Addr{}, false
		}
		return f.addrs[at], true
	}), nil
}

func (f *Fake) list(keep func(address) bool) ([]netip.Addr, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failures > 0 {
		f.failures--
		return nil, fmt.Errorf("list the addresses of the interfaces (RTM_GETADDR): the fake was told to fail %d more times", f.failures)
	}
	var list []address
	for _, addr := range f.addrs {
		list = append(list, address{addr: addr})
	}
	return sorted(list, keep), nil
}

// Watch implements Interfaces.
func (f *Fake) Watch(ctx context.Context) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed := make(chan struct{}, 1)
	f.watchers = append(f.watchers, changed)
	context.AfterFunc(ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.watchers = slices.DeleteFunc(f.watchers, func(w chan struct{}) bool { return w == changed })
	})
	return changed
}
