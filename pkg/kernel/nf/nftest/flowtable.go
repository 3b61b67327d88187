package nftest

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// Attributes of linux/netfilter/nf_tables.h that golang.org/x/sys/unix lacks.
const (
	flowtableHook = 3 // NFTA_FLOWTABLE_HOOK
	hookDevs      = 3 // NFTA_FLOWTABLE_HOOK_DEVS
	deviceName    = 1 // NFTA_DEVICE_NAME
)

type flowtable struct {
	devices []string
	users   int
}

// addFlowtable adds a flowtable, or devices to it. Any device exists.
func (k *Kernel) addFlowtable(name string, devices []string) error {
	flowtables := k.state.table.flowtables
	for _, device := range devices {
		if err := k.mayAdd("device "+device, nil); err != nil {
			return err
		}
	}
	old := flowtables[name]
	now := &flowtable{devices: devices}
	if old != nil {
		now = &flowtable{devices: slices.Clone(old.devices), users: old.users}
		for _, device := range devices {
			if !slices.Contains(now.devices, device) {
				now.devices = append(now.devices, device)
			}
		}
	}
	return k.replaceFlowtable(unix.NFT_MSG_NEWFLOWTABLE, name, now)
}

// deleteFlowtable deletes devices of a flowtable, or all of it if there are none.
func (k *Kernel) deleteFlowtable(name string, devices []string) error {
	old := k.state.table.flowtables[name]
	switch {
	case old == nil:
		return refuse(unix.ENOENT, "no flowtable %s", name)
	case len(devices) == 0 && old.users > 0:
		return refuse(unix.EBUSY, "flowtable %s is in use", name)
	case len(devices) == 0:
		return k.replaceFlowtable(unix.NFT_MSG_DELFLOWTABLE, name, nil)
	}
	left := slices.DeleteFunc(slices.Clone(old.devices), func(d string) bool { return slices.Contains(devices, d) })
	if len(left)+len(devices) > len(old.devices) {
		return refuse(unix.ENOENT, "flowtable %s has no such device", name)
	}
	return k.replaceFlowtable(unix.NFT_MSG_DELFLOWTABLE, name, &flowtable{left, old.users})
}

func (k *Kernel) replaceFlowtable(command int, name string, now *flowtable) error {
	flowtables := k.state.table.flowtables
	old := flowtables[name]
	if flowtables[name] = now; now == nil {
		delete(flowtables, name)
	}
	k.did(func() {
		if flowtables[name] = old; old == nil {
			delete(flowtables, name)
		}
	})
	k.note(command, name)
	return nil
}

// LoseDevice removes a device from all flowtables, as the kernel does when it disappears: nobody is notified.
func (k *Kernel) LoseDevice(device string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, t := range k.tables {
		for _, f := range t.flowtables {
			f.devices = slices.DeleteFunc(f.devices, func(d string) bool { return d == device })
		}
	}
}

// devicesOf reads the devices in a message about a flowtable.
func devicesOf(m netlink.Message) (devices []string) {
	for a := netlink.ReadAttrs(netlink.Attr(m.Attr(flowtableHook), hookDevs)); a.Next(); {
		devices = append(devices, a.String())
	}
	return devices
}

func (f *flowtable) appendTo(b []byte, of nf.TableName, name string) []byte {
	b, start := begin(b, unix.NFT_MSG_NEWFLOWTABLE, of)
	b = netlink.AppendString(b, unix.NFTA_SET_NAME, name)
	var hook, devices int
	b, hook = netlink.BeginNest(b, flowtableHook)
	b, devices = netlink.BeginNest(b, hookDevs)
	for _, device := range f.devices {
		b = netlink.AppendString(b, deviceName, device)
	}
	netlink.EndNest(b, devices)
	netlink.EndNest(b, hook)
	netlink.EndMessage(b, start)
	return b
}
