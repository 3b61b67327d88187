package nf

import (
	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// Attributes and values of linux/netfilter/nf_tables.h that golang.org/x/sys/unix lacks.
const (
	nftaFlowtableHook  = 3 // NFTA_FLOWTABLE_HOOK
	nftaFlowtableFlags = 7 // NFTA_FLOWTABLE_FLAGS
	flowtableCounter   = 2 // NFT_FLOWTABLE_COUNTER
	nftaHookNum        = 1 // NFTA_FLOWTABLE_HOOK_NUM
	nftaHookPriority   = 2 // NFTA_FLOWTABLE_HOOK_PRIORITY
	nftaHookDevs       = 3 // NFTA_FLOWTABLE_HOOK_DEVS
	nftaDeviceName     = 1 // NFTA_DEVICE_NAME
)

// EnsureFlowtable adds a flowtable without devices unless it exists. Packets on its fast path count in conntrack's counters. Commit fails
// with EOPNOTSUPP, or ENOENT, if the kernel has none.
func (b *Batch) EnsureFlowtable(name string) {
	counts := netlink.AppendUint32(Flowtable{}.AppendTo(nil), nftaFlowtableFlags, flowtableCounter)
	b.Object(unix.NFT_MSG_NEWFLOWTABLE, unix.NLM_F_CREATE, name, counts)
}

// AddDevice adds a device to a flowtable unless it has it. The kernel removes it when it disappears. Commit fails with ENOENT if the
// flowtable or the device does not exist.
func (b *Batch) AddDevice(flowtable, device string) {
	b.Object(unix.NFT_MSG_NEWFLOWTABLE, unix.NLM_F_CREATE, flowtable, Flowtable{Devices: []string{device}}.AppendTo(nil))
}

// Flowtable is a flowtable of a table.
type Flowtable struct {
	Name    string
	Devices []string
}

// AppendTo appends where the flowtable is: at ingress, with priority 0, of its devices.
func (f Flowtable) AppendTo(b []byte) []byte {
	b, hook := netlink.BeginNest(b, nftaFlowtableHook)
	b = Numbers{{nftaHookNum, 0}, {nftaHookPriority, 0}}.AppendTo(b)
	if len(f.Devices) > 0 {
		var devices int
		b, devices = netlink.BeginNest(b, nftaHookDevs)
		for _, device := range f.Devices {
			b = netlink.AppendString(b, nftaDeviceName, device)
		}
		netlink.EndNest(b, devices)
	}
	netlink.EndNest(b, hook)
	return b
}

// DecodeFlowtable decodes a message about a flowtable.
func DecodeFlowtable(m netlink.Message) Flowtable {
	f := Flowtable{Name: m.AttrString(attrName)}
	for a := netlink.ReadAttrs(netlink.Attr(m.Attr(nftaFlowtableHook), nftaHookDevs)); a.Next(); {
		f.Devices = append(f.Devices, a.String())
	}
	return f
}
