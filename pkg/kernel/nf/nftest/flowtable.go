package nftest

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

type flowtable struct {
	nf.Flowtable
	users int
}

// addFlowtable adds a flowtable, or devices to it. Any device exists.
func (k *Kernel) addFlowtable(f nf.Flowtable) error {
	for _, device := range f.Devices {
		if err := k.mayAdd("device "+device, nil); err != nil {
			return err
		}
	}
	now := &flowtable{Flowtable: f}
	if old := k.state.table.flowtables[f.Name]; old != nil {
		added := slices.DeleteFunc(f.Devices, func(d string) bool { return slices.Contains(old.Devices, d) })
		now.Devices, now.users = slices.Concat(old.Devices, added), old.users
	}
	change(k, unix.NFT_MSG_NEWFLOWTABLE, k.state.table.flowtables, f.Name, now)
	return nil
}

// deleteFlowtable deletes devices of a flowtable, or all of it if there are none.
func (k *Kernel) deleteFlowtable(f nf.Flowtable) error {
	old := k.state.table.flowtables[f.Name]
	left := &flowtable{Flowtable: nf.Flowtable{Name: f.Name}}
	switch {
	case old == nil:
		return refuse(unix.ENOENT, "no flowtable %s", f.Name)
	case len(f.Devices) == 0 && old.users > 0:
		return refuse(unix.EBUSY, "flowtable %s is in use", f.Name)
	case len(f.Devices) == 0:
		left = nil
	default:
		left.users = old.users
		left.Devices = slices.DeleteFunc(slices.Clone(old.Devices), func(d string) bool { return slices.Contains(f.Devices, d) })
		if len(left.Devices)+len(f.Devices) > len(old.Devices) {
			return refuse(unix.ENOENT, "flowtable %s has no such device", f.Name)
		}
	}
	change(k, unix.NFT_MSG_DELFLOWTABLE, k.state.table.flowtables, f.Name, left)
	return nil
}

// LoseDevice removes a device from all flowtables, as the kernel does when it disappears: nobody is notified.
func (k *Kernel) LoseDevice(device string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, t := range k.tables {
		for _, f := range t.flowtables {
			f.Devices = slices.DeleteFunc(f.Devices, func(d string) bool { return d == device })
		}
	}
}
