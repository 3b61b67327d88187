package conntrack

import (
	"context"
	"errors"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// Translated calls visit with the IP protocol and the ends of each open connection of the calling thread's network namespace whose
// destination is translated (IPS_DST_NAT), in any zone. Both families take one walk of the table, and the kernel copies no other
// entry (Linux 5.15). A TCP connection is open until both ends have closed it; an entry of another protocol until it expires.
// The flow is valid until visit returns. If the answer was interrupted by changes of the table, the error says so.
func Translated(ctx context.Context, visit func(protocol uint8, flow *Flow)) error {
	socket, err := netlink.Open()
	if err != nil {
		return err
	}
	err = read(ctx, socket, unix.AF_UNSPEC, appendTranslated, func(e *entry) {
		if e.open() && e.status&statusDstNAT != 0 {
			visit(e.protocol, &e.Flow)
		}
	})
	return errors.Join(err, socket.Close())
}

// appendTranslated appends the attributes that restrict a dump to entries whose destination is translated.
func appendTranslated(b []byte) []byte {
	return netlink.AppendUint32(netlink.AppendUint32(b, nl.CTA_STATUS, statusDstNAT), ctaStatusMask, statusDstNAT)
}
