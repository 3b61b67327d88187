package nft

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// Update lets a packet write an element into a dynamic map, or refresh the element's timeout if the map has the key, whose
// value does not change: `update @name { ip saddr timeout 3h : ip daddr . th dport }`. If the map is full, nothing is written
// and the packet continues with the next rule.
//
// The map needs the flags dynamic and timeout. nft 1.0.6 prints every such rule, but cannot load those whose key or value
// takes more than 16 bytes: it aborts with "Assertion `dreg < ctx->reg_low' failed". A Batch can write all of them.
type Update struct {
	Map        string
	Key, Value Concat
	// Timeout is a whole number of seconds.
	Timeout time.Duration
}

func (u Update) text(family nf.Family) string {
	return fmt.Sprintf("update @%s { %s timeout %s : %s }", u.Map, u.Key.text(family), formatTimeout(u.Timeout), u.Value.text(family))
}

func (u Update) appendTo(b []byte, family nf.Family) []byte {
	// As nft does, the value begins at the next register of 16 bytes.
	at := (u.Key.width(family) + 15) &^ 15
	b = u.Key.appendTo(b, family)
	b = u.Value.appendAt(b, family, at)
	b, open := nf.BeginExpr(b, "dynset")
	b = nf.Numbers{
		{unix.NFTA_DYNSET_SREG_KEY, unix.NFT_REG_1}, {unix.NFTA_DYNSET_SREG_DATA, register(at)},
		{unix.NFTA_DYNSET_OP, unix.NFT_DYNSET_OP_UPDATE},
	}.AppendTo(b)
	b = netlink.AppendBytes(b, unix.NFTA_DYNSET_TIMEOUT, binary.BigEndian.AppendUint64(nil, uint64(u.Timeout.Milliseconds())))
	b = netlink.AppendString(b, unix.NFTA_DYNSET_SET_NAME, u.Map)
	open.End(b)
	return b
}

// formatTimeout formats a duration as nft does: 1d2h3m4s, without the parts that are 0.
func formatTimeout(d time.Duration) string {
	var b strings.Builder
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		if n := d / unit.length; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, unit.name)
			d -= n * unit.length
		}
	}
	return b.String()
}
