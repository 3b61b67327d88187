package conntrack

import (
	"context"
	"net/netip"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/conntrack"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Open calls visit with the open connections of the calling thread's network namespace that rules have translated: what they were made
// to, and where their packets go. It reads the table once (conntrack.Translated).
func Open(ctx context.Context, visit func(protocol cluster.Protocol, destination, endpoint netip.AddrPort)) error {
	return conntrack.Translated(ctx, func(protocol uint8, flow *conntrack.Flow) {
		visit(cluster.Protocol(protocol), flow.Destination, flow.ReplySource)
	})
}
