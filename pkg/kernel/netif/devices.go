//go:build linux

package netif

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
)

// Devices returns the indexes of the interfaces on which IP packets arrive, by name: those that are up, except loopback and the parts of
// another one. The ports of bridges are among them, because with br_netfilter rules see a packet before it arrives on the bridge itself.
func (Kernel) Devices() (map[string]int, error) {
	var links []netlink.Link
	var err error
	for range dumpTries {
		if links, err = netlink.LinkList(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("list the interfaces (RTM_GETLINK): %w", err)
	}
	devices, whole := map[string]int{}, map[int]bool{0: true} // 0 is no master
	for _, link := range links {
		if link.Type() == "bridge" {
			whole[link.Attrs().Index] = true
		}
	}
	for _, link := range links {
		if a := link.Attrs(); a.Flags&(net.FlagUp|net.FlagLoopback) == net.FlagUp && whole[a.MasterIndex] {
			devices[a.Name] = a.Index
		}
	}
	return devices, nil
}

// WatchDevices is Watch for changes of interfaces.
func (Kernel) WatchDevices(ctx context.Context) <-chan struct{} {
	return watch(ctx, func(updates chan<- netlink.LinkUpdate, done <-chan struct{}) error {
		return netlink.LinkSubscribeWithOptions(updates, done, netlink.LinkSubscribeOptions{ReceiveBufferSize: receiveBuffer})
	})
}
