package nft

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/nftables"
)

// tableOwned is NFT_TABLE_F_OWNER, of Linux 5.12 and later.
const tableOwned = 0x2

// policyAccept is NF_ACCEPT.
const policyAccept = 1

// AddOwnedTable adds the table, owned by this Table: no other process can change it, and the kernel removes it with everything
// in it when the Table is closed or its process ends, in any way. Commit fails with EEXIST or EPERM if the name exists, and with
// EINVAL or EOPNOTSUPP before Linux 5.12, which has no such tables.
func (b *Batch) AddOwnedTable() {
	b.others++
	b.begin(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	b.buf = netlink.AppendString(b.buf, unix.NFTA_TABLE_NAME, b.table)
	b.buf = netlink.AppendUint32(b.buf, unix.NFTA_TABLE_FLAGS, tableOwned)
	netlink.EndMessage(b.buf, b.msgStart)
}

// AddBaseChain adds a chain with a type, hook and priority, and the policy accept. Commit fails with EEXIST if the name exists.
func (b *Batch) AddBaseChain(c Chain) {
	if !b.checkChain("add", c.Name) {
		return
	}
	b.begin(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	b.buf = netlink.AppendString(b.buf, unix.NFTA_CHAIN_TABLE, b.table)
	b.buf = netlink.AppendString(b.buf, unix.NFTA_CHAIN_NAME, c.Name)
	b.buf = netlink.AppendString(b.buf, unix.NFTA_CHAIN_TYPE, c.Type)
	var hook int
	b.buf, hook = netlink.BeginNest(b.buf, unix.NFTA_CHAIN_HOOK)
	b.buf = netlink.AppendUint32(b.buf, unix.NFTA_HOOK_HOOKNUM, c.Hook)
	b.buf = netlink.AppendUint32(b.buf, unix.NFTA_HOOK_PRIORITY, uint32(c.Priority))
	netlink.EndNest(b.buf, hook)
	b.buf = netlink.AppendUint32(b.buf, unix.NFTA_CHAIN_POLICY, policyAccept)
	if c.Comment != "" {
		b.buf = appendComment(b.buf, nftaChainUserdata, c.Comment)
	}
	netlink.EndMessage(b.buf, b.msgStart)
}

// DestinationIs matches packets to an address of the table's family: `ip daddr 10.96.0.1`.
type DestinationIs netip.Addr

func (d DestinationIs) text(family knftables.Family) string {
	return fmt.Sprintf("%s daddr %s", family, netip.Addr(d))
}

func (d DestinationIs) appendTo(b []byte, family knftables.Family) []byte {
	b = nftables.AppendPayload(b, unix.NFT_REG_1, payloadNetwork, sourceOffset(family)+addressLen(family), addressLen(family))
	return nftables.AppendCompare(b, false, netip.Addr(d).AsSlice())
}

// DestinationIsLocal matches packets to an address of this machine: `fib daddr type local`.
type DestinationIsLocal struct{}

func (DestinationIsLocal) text(knftables.Family) string { return "fib daddr type local" }

func (DestinationIsLocal) appendTo(b []byte, _ knftables.Family) []byte {
	return appendIsLocal(b, fibDestination)
}

// DestinationPortIs matches packets of a protocol to a port: `tcp dport 80`.
type DestinationPortIs struct {
	// Protocol is IPPROTO_TCP, IPPROTO_UDP or IPPROTO_SCTP.
	Protocol byte
	Port     uint16
}

func (d DestinationPortIs) text(knftables.Family) string {
	name := map[byte]string{unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp", unix.IPPROTO_SCTP: "sctp"}[d.Protocol]
	return fmt.Sprintf("%s dport %d", name, d.Port)
}

func (d DestinationPortIs) appendTo(b []byte, _ knftables.Family) []byte {
	b = appendProtocol(b, d.Protocol, false)
	b = nftables.AppendPayload(b, unix.NFT_REG_1, payloadTransport, 2, 2)
	return nftables.AppendCompare(b, false, binary.BigEndian.AppendUint16(nil, d.Port))
}

// OpensTCP matches segments that open a connection of TCP, to a port unless Port is 0: `tcp dport 80 tcp flags syn / syn,ack`.
type OpensTCP struct{ Port uint16 }

func (o OpensTCP) text(family knftables.Family) string {
	const flags = "tcp flags syn / syn,ack"
	if o.Port == 0 {
		return flags
	}
	return o.port().text(family) + " " + flags
}

func (o OpensTCP) port() DestinationPortIs {
	return DestinationPortIs{Protocol: unix.IPPROTO_TCP, Port: o.Port}
}

func (o OpensTCP) appendTo(b []byte, family knftables.Family) []byte {
	const flags, syn, ack = 13, 0x02, 0x10
	if o.Port == 0 {
		b = appendProtocol(b, unix.IPPROTO_TCP, false)
	} else {
		b = o.port().appendTo(b, family)
	}
	b = nftables.AppendPayload(b, unix.NFT_REG_1, payloadTransport, flags, 1)
	b = nftables.AppendBitwise(b, []byte{syn | ack}, []byte{0})
	return nftables.AppendCompare(b, false, []byte{syn})
}

// IsNotTCP matches packets of all other protocols: `meta l4proto != tcp`.
type IsNotTCP struct{}

func (IsNotTCP) text(knftables.Family) string { return "meta l4proto != tcp" }

func (IsNotTCP) appendTo(b []byte, _ knftables.Family) []byte {
	return appendProtocol(b, unix.IPPROTO_TCP, true)
}

func appendProtocol(b []byte, protocol byte, not bool) []byte {
	b = nftables.AppendExpr(b, "meta", nftables.Numbers{{unix.NFTA_META_DREG, unix.NFT_REG_1}, {unix.NFTA_META_KEY, unix.NFT_META_L4PROTO}})
	return nftables.AppendCompare(b, not, []byte{protocol})
}

// LimitRate matches at most this number of packets in a second, and as many at once after a pause: `limit rate 20/second burst
// 20 packets`. All others do not match.
type LimitRate uint32

func (l LimitRate) text(knftables.Family) string {
	return fmt.Sprintf("limit rate %d/second burst %d packets", uint32(l), uint32(l))
}

func (l LimitRate) appendTo(b []byte, _ knftables.Family) []byte {
	b, open := nftables.BeginExpr(b, "limit")
	b = netlink.AppendBytes(b, unix.NFTA_LIMIT_RATE, binary.BigEndian.AppendUint64(nil, uint64(l)))
	b = netlink.AppendBytes(b, unix.NFTA_LIMIT_UNIT, binary.BigEndian.AppendUint64(nil, 1)) // second
	b = nftables.Numbers{{unix.NFTA_LIMIT_BURST, uint32(l)}, {unix.NFTA_LIMIT_TYPE, unix.NFT_LIMIT_PKTS}, {unix.NFTA_LIMIT_FLAGS, 0}}.AppendTo(b)
	open.End(b)
	return b
}

// SetTrace makes the kernel report every rule that the packet matches from now on: `meta nftrace set 1`.
type SetTrace struct{}

func (SetTrace) text(knftables.Family) string { return "meta nftrace set 1" }

func (SetTrace) appendTo(b []byte, _ knftables.Family) []byte {
	b, open := nftables.BeginExpr(b, "immediate")
	b = netlink.AppendUint32(b, unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_1)
	b = nftables.AppendData(b, unix.NFTA_IMMEDIATE_DATA, []byte{1})
	open.End(b)
	return nftables.AppendExpr(b, "meta", nftables.Numbers{{unix.NFTA_META_KEY, unix.NFT_META_NFTRACE}, {unix.NFTA_META_SREG, unix.NFT_REG_1}})
}
