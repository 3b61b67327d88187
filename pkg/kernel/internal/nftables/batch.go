package nftables

import (
	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// BeginBatch appends the message that begins a batch: all of its operations take effect, or none.
func BeginBatch(b []byte) []byte {
	start := len(b)
	b = netlink.AppendMessage(b, netlink.Header{Type: unix.NFNL_MSG_BATCH_BEGIN, Flags: unix.NLM_F_REQUEST})
	netlink.EndMessage(b, start)
	return b
}

// EndBatch numbers the messages of a batch from seq on, asks for an acknowledgement of the last operation, whose number is
// lastSeq, and appends the end of the batch, which takes another number.
//
// It does not ask for an acknowledgement of the end, because kernels before 6.10 ignore that.
func EndBatch(b []byte, seq uint32) (_ []byte, lastSeq uint32) {
	last, lastFlags := 0, uint16(0)
	for m := netlink.ReadMessages(b); m.Next(); {
		netlink.SetFlags(b, m.Offset, m.Flags&^unix.NLM_F_ACK)
		netlink.SetSeq(b, m.Offset, seq)
		last, lastSeq = m.Offset, seq
		lastFlags = m.Flags
		seq++
	}
	netlink.SetFlags(b, last, lastFlags|unix.NLM_F_ACK)
	n := len(b)
	b = netlink.AppendMessage(b, netlink.Header{Type: unix.NFNL_MSG_BATCH_END, Flags: unix.NLM_F_REQUEST})
	netlink.EndMessage(b, n)
	netlink.SetSeq(b, n, seq)
	return b, lastSeq
}
