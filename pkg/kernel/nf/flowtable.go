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
	b.flowtable(unix.NFT_MSG_NEWFLOWTABLE, unix.NLM_F_CREATE, name, "")
	b.buf = netlink.AppendUint32(b.buf, nftaFlowtableFlags, flowtableCounter)
	netlink.EndMessage(b.buf, b.msgStart)
}

// AddDevice adds a device to a flowtable unless it has it. The kernel removes it when it disappears. Commit fails with ENOENT if the
// flowtable or the device does not exist.
func (b *Batch) AddDevice(flowtable, device string) {
	b.flowtable(unix.NFT_MSG_NEWFLOWTABLE, unix.NLM_F_CREATE, flowtable, device)
	netlink.EndMessage(b.buf, b.msgStart)
}

// flowtable counts an operation on a flowtable, and begins its message: at ingress, with priority 0, of a device or none.
func (b *Batch) flowtable(command int, flags uint16, name, device string) {
	b.others++
	b.begin(command, flags)
	b.buf = netlink.AppendString(b.buf, attrTable, b.table)
	b.buf = netlink.AppendString(b.buf, attrName, name)
	var hook, devices int
	b.buf, hook = netlink.BeginNest(b.buf, nftaFlowtableHook)
	b.buf = Numbers{{nftaHookNum, 0}, {nftaHookPriority, 0}}.AppendTo(b.buf)
	if device != "" {
		b.buf, devices = netlink.BeginNest(b.buf, nftaHookDevs)
		b.buf = netlink.AppendString(b.buf, nftaDeviceName, device)
		netlink.EndNest(b.buf, devices)
	}
	netlink.EndNest(b.buf, hook)
}

// Flowtable is a flowtable of a table.
type Flowtable struct {
	Name    string
	Devices []string
}

// flowtables lists those of the table.
func (t *Table) flowtables() (all []Flowtable, _ error) {
	return all, t.Dump(t.query(unix.NFT_MSG_GETFLOWTABLE, ""), func(m netlink.Message) error {
		f := Flowtable{Name: m.AttrString(attrName)}
		for a := netlink.ReadAttrs(netlink.Attr(m.Attr(nftaFlowtableHook), nftaHookDevs)); a.Next(); {
			f.Devices = append(f.Devices, a.String())
		}
		all = append(all, f)
		return nil
	})
}
