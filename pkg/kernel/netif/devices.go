//go:build linux

package netif

import (
	"context"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
)

// Devices returns the indexes of the interfaces on which IP packets arrive, by name: those that are up, except loopback and the parts of
// another one. The ports of bridges are among them in place of the bridges: with br_netfilter, rules see a packet before it arrives on
// the bridge itself.
func (Kernel) Devices() (map[string]int, error) {
	links, err := Uninterrupted(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list the interfaces (RTM_GETLINK): %w", err)
	}
	devices, bridges := map[string]int{}, map[int]bool{}
	for _, link := range links {
		bridges[link.Attrs().Index] = link.Type() == "bridge"
	}
	for _, link := range links {
		a := link.Attrs()
		if a.Flags&(net.FlagUp|net.FlagLoopback) == net.FlagUp && (a.MasterIndex == 0 || bridges[a.MasterIndex]) && !bridges[a.Index] {
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
