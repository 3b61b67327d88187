//go:build linux

package netif

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// Kernel is the interfaces of the network namespace in which its methods are called. Each opens the sockets that it needs.
type Kernel struct{}

const (
	// dumpTries is how often a list is read until no change interrupts that.
	dumpTries = 10
	// resubscribe is the pause before a broken subscription is renewed. It doubles while no change is received, up to maxResubscribe.
	resubscribe    = 100 * time.Millisecond
	maxResubscribe = time.Minute
	// receiveBuffer is the size of the socket's buffer in bytes, enough for some thousand changes at once.
	receiveBuffer = 1 << 20
)

// Addrs returns the addresses of all interfaces of both families, sorted and distinct, including loopback. It leaves
// out IPv6 link-local addresses, which need a zone, and addresses that failed duplicate address detection.
func (Kernel) Addrs() ([]netip.Addr, error) {
	list, err := dump()
	if err != nil {
		return nil, err
	}
	return sorted(list, func(a address) bool { return !a.addr.IsLinkLocalUnicast() || a.addr.Is4() }), nil
}

// NodeAddrs returns the addresses by which other machines may know this one: global unicast addresses of interfaces
// other than loopback. First comes the address of each family, IPv4 before IPv6, that the kernel uses towards the
// default route, or without one of the interface with the other family's; then the others in order.
func (Kernel) NodeAddrs() ([]netip.Addr, error) {
	list, err := dump()
	if err != nil {
		return nil, err
	}
	loopback, links := map[int]bool{}, map[netip.Addr]int{}
	for _, a := range list {
		loopback[a.link] = loopback[a.link] || a.addr.IsLoopback()
		links[a.addr] = a.link
	}
	addrs := sorted(list, func(a address) bool { return a.addr.IsGlobalUnicast() && !loopback[a.link] })
	return primaryFirst(addrs, links, Sources()), nil
}

// address is an address and the index of the interface that has it.
type address struct {
	addr netip.Addr
	link int
}

// dump returns all addresses except those that failed duplicate address detection.
func dump() ([]address, error) {
	list, err := Uninterrupted(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list the addresses of the interfaces (RTM_GETADDR): %w", err)
	}
	var found []address
	for _, a := range list {
		if a.IPNet == nil || a.Flags&unix.IFA_F_DADFAILED != 0 {
			continue
		}
		if addr, ok := netip.AddrFromSlice(a.IP); ok {
			found = append(found, address{addr.Unmap(), a.LinkIndex})
		}
	}
	return found, nil
}

// Uninterrupted reads a list until no change interrupts that.
func Uninterrupted[T any](list func() ([]T, error)) (all []T, err error) {
	for range dumpTries {
		all, err = list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return all, err
}

func sorted(list []address, keep func(address) bool) []netip.Addr {
	var addrs []netip.Addr
	for _, a := range list {
		if keep(a) {
			addrs = append(addrs, a.addr)
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs)
}

// Sources returns the addresses, at most one of each family, that the kernel uses towards its default route.
func Sources() (sources []netip.Addr) {
	for _, faraway := range []string{"192.0.2.1", "2001:db8::1"} { // of no machine (RFC 5737, RFC 3849); nothing is sent
		routes, err := netlink.RouteGet(netip.MustParseAddr(faraway).AsSlice())
		if err != nil || len(routes) == 0 {
			continue
		}
		if addr, ok := netip.AddrFromSlice(routes[0].Src); ok {
			sources = append(sources, addr.Unmap())
		}
	}
	return sources
}

// primaryFirst moves one of the sources to the front, for each family; without a default route the first address of
// the interface that has the other family's, such as of eth0 and not of a bridge of pods, or else any. links are the interfaces of addresses.
func primaryFirst(addrs []netip.Addr, links map[netip.Addr]int, sources []netip.Addr) (front []netip.Addr) {
	rank := func(a netip.Addr) int {
		link, known := links[a]
		switch {
		case slices.Contains(sources, a):
			return 0
		case known && slices.ContainsFunc(sources, func(s netip.Addr) bool { return links[s] == link }):
			return 1
		default:
			return 2
		}
	}
	for _, v4 := range []bool{true, false} {
		own := slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return a.Is4() != v4 })
		if len(own) > 0 {
			front = append(front, slices.MinFunc(own, func(a, b netip.Addr) int { return rank(a) - rank(b) }))
		}
	}
	return append(front, slices.DeleteFunc(addrs, func(a netip.Addr) bool { return slices.Contains(front, a) })...)
}

// Watch returns a channel that receives a value after addresses may have changed, until ctx ends. Several changes may
// be coalesced into one value. No change after Watch returned is missed: a subscription that broke, because there were
// more changes than its buffer holds, is renewed and counts as a change.
func (Kernel) Watch(ctx context.Context) <-chan struct{} {
	return watch(ctx, func(updates chan<- netlink.AddrUpdate, done <-chan struct{}) error {
		return netlink.AddrSubscribeWithOptions(updates, done, netlink.AddrSubscribeOptions{ReceiveBufferSize: receiveBuffer})
	})
}

// subscription makes the kernel send updates until done is closed. It closes the channel when it fails.
type subscription[T any] func(updates chan<- T, done <-chan struct{}) error

func watch[T any](ctx context.Context, kind subscription[T]) <-chan struct{} {
	changed := make(chan struct{}, 1)
	updates, unsubscribe, err := kind.subscribe(ctx)
	go func() {
		for pause := resubscribe; ; pause = min(2*pause, maxResubscribe) {
			if err == nil {
				for range updates { // until the subscription ends
					pause = resubscribe
					notify(changed)
				}
			}
			unsubscribe()
			if ctx.Err() == nil && pause > resubscribe {
				klog.FromContext(ctx).Error(err, "Cannot follow changes of interfaces or addresses; they are listed now and then", "retryIn", pause)
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			updates, unsubscribe, err = kind.subscribe(ctx)
			notify(changed)
		}
	}()
	return changed
}

// subscribe returns a channel of changes, and a function that must be called after it was closed: the library closes the socket then,
// not when it fails.
func (kind subscription[T]) subscribe(ctx context.Context) (_ <-chan T, unsubscribe func(), _ error) {
	ctx, unsubscribe = context.WithCancel(ctx)
	updates := make(chan T)
	return updates, unsubscribe, kind(updates, ctx.Done())
}

func notify(changed chan<- struct{}) {
	select {
	case changed <- struct{}{}:
	default:
	}
}
