package ipvs

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipvs"
)

// fake holds objects in memory. Like the kernel it does not delete a set that a rule uses, or a device that is not a dummy.
type fake struct {
	Virtual []ipvs.Server
	// Backends are the destinations of virtual servers.
	Backends map[ipvs.Server][]ipvs.Destination
	// Sockets are the local addresses of open connections, Sources the addresses that new connections no longer have.
	Sockets map[netip.Addr]bool
	Sources map[netip.Addr]bool
	// Named are the ports of the sets, Used those sets that rules use.
	Named map[string][]uint16
	Used  map[string]bool
	// Dummies are the dummy devices with their addresses, Others all other addresses.
	Dummies map[string][]netip.Addr
	Others  []netip.Addr
	// Refuse, unless nil, is the error of every deletion of a virtual server, Unseen that of Destinations, of Bound and of SetSource.
	Refuse, Unseen error
}

var _ ipvs.Objects = (*fake)(nil)

// Servers is part of [ipvs.Objects].
func (f *fake) Servers() ([]ipvs.Server, error) { return slices.Clone(f.Virtual), nil }

// DeleteServer is part of [ipvs.Objects].
func (f *fake) DeleteServer(s ipvs.Server) error {
	if f.Refuse != nil {
		return fmt.Errorf("delete the virtual server %s: %w", s, f.Refuse)
	}
	f.Virtual = slices.DeleteFunc(f.Virtual, func(o ipvs.Server) bool { return o == s })
	delete(f.Backends, s)
	return nil
}

// Destinations is part of [ipvs.Objects].
func (f *fake) Destinations(s ipvs.Server) ([]ipvs.Destination, error) {
	return slices.Clone(f.Backends[s]), f.Unseen
}

// Quiesce is part of [ipvs.Objects].
func (f *fake) Quiesce(s ipvs.Server, d ipvs.Destination) error {
	for i := range f.Backends[s] {
		if f.Backends[s][i].Addr == d.Addr {
			f.Backends[s][i].Weight = 0
		}
	}
	return nil
}

// Sets is part of [ipvs.Objects].
func (f *fake) Sets(wanted func(name string) bool) ([]ipvs.Set, error) {
	var sets []ipvs.Set
	for _, name := range slices.Sorted(maps.Keys(f.Named)) {
		if wanted(name) {
			sets = append(sets, ipvs.Set{Name: name, Ports: slices.Clone(f.Named[name])})
		}
	}
	return sets, nil
}

// DeleteSet is part of [ipvs.Objects].
func (f *fake) DeleteSet(name string) error {
	if f.Used[name] {
		return fmt.Errorf("delete the set %s: %w", name, ipvs.ErrBusy)
	}
	delete(f.Named, name)
	return nil
}

// Device is part of [ipvs.Objects].
func (f *fake) Device(name string) (addrs []netip.Addr, exists bool, err error) {
	addrs, exists = f.Dummies[name]
	return slices.Clone(addrs), exists, nil
}

// DeleteAddr is part of [ipvs.Objects].
func (f *fake) DeleteAddr(device string, addr netip.Addr) error {
	if addrs, ok := f.Dummies[device]; ok {
		f.Dummies[device] = slices.DeleteFunc(addrs, func(a netip.Addr) bool { return a == addr })
	}
	return nil
}

// SetSource is part of [ipvs.Objects].
func (f *fake) SetSource(_ context.Context, device string, addrs []netip.Addr) error {
	for _, addr := range addrs {
		if !slices.Contains(f.Dummies[device], addr) {
			return fmt.Errorf("the device %s has no address %s", device, addr)
		}
		if f.Sources == nil {
			f.Sources = map[netip.Addr]bool{}
		}
		f.Sources[addr] = true
	}
	return f.Unseen
}

// DeleteRoutes is part of [ipvs.Objects].
func (f *fake) DeleteRoutes(except map[netip.Addr]bool) error {
	maps.DeleteFunc(f.Sources, func(addr netip.Addr, _ bool) bool { return !except[addr] })
	return nil
}

// Bound is part of [ipvs.Objects].
func (f *fake) Bound() (map[netip.Addr]bool, error) { return maps.Clone(f.Sockets), f.Unseen }

// DeleteDevice is part of [ipvs.Objects].
func (f *fake) DeleteDevice(name string) error {
	delete(f.Dummies, name)
	return nil
}

// Elsewhere is part of [ipvs.Objects].
func (f *fake) Elsewhere(device string) ([]netip.Addr, error) {
	all := slices.Clone(f.Others)
	for name, addrs := range f.Dummies {
		if name != device {
			all = append(all, addrs...)
		}
	}
	return all, nil
}
