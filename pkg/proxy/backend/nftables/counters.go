package nftables

import (
	"context"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Counters is part of [backend.Backend].
func (b *Backend) Counters() backend.KernelCounters {
	return backend.KernelCounters{Connections: b, Clients: b.clients, LocalhostRejected: localhostRejected, Names: backend.MetricNames{
		SyncFailures:            "sync_proxy_rules_nftables_sync_failures_total",
		CleanupFailures:         "sync_proxy_rules_nftables_cleanup_failures_total",
		LocalhostRejected:       "nftables_localhost_nodeport_rejected_packets_total",
		LocalhostListeners:      "nftables_localhost_nodeport_listeners",
		LocalhostListenFailures: "nftables_localhost_nodeport_listener_creation_failures_total",
	}}
}

// readTimeout limits the time to read the counters.
const readTimeout = 2 * time.Second

// localhostRejected opens the table again, because the backend's tables belong to another goroutine.
func localhostRejected(family cluster.Family) (packets map[cluster.Protocol]uint64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	packets = map[cluster.Protocol]uint64{}
	err = onTable(family, func(table nft.Table) error {
		counters, err := table.Counters(ctx)
		for _, c := range counters {
			for _, protocol := range protocols {
				if c.Name == localhostCounter(protocol) {
					packets[protocol] = c.Packets
				}
			}
		}
		return err
	})
	return packets, err
}

// clients opens the table again, too.
func (b *Backend) clients(family cluster.Family) (clients backend.Clients, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	if f := b.family(family); f != nil {
		err = onTable(family, func(table nft.Table) error { return f.clients.count(ctx, table, &clients) })
	}
	return clients, err
}
