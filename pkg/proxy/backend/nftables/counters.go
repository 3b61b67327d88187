package nftables

import (
	"context"
	"errors"
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
func localhostRejected(family cluster.Family) (map[cluster.Protocol]uint64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	table, err := nft.Open(dialectOf(family).nftFamily, TableName)
	if err != nil {
		return nil, wrap(family, err)
	}
	packets, err := rejectedOnLocalhost(ctx, table)
	return packets, wrap(family, errors.Join(err, table.Close()))
}

func rejectedOnLocalhost(ctx context.Context, table nft.Table) (map[cluster.Protocol]uint64, error) {
	counters, err := table.Counters(ctx)
	packets := map[cluster.Protocol]uint64{}
	for _, c := range counters {
		for _, protocol := range protocols {
			if c.Name == localhostCounter(protocol) {
				packets[protocol] = c.Packets
			}
		}
	}
	return packets, err
}

// clients opens the table again, too.
func (b *Backend) clients(family cluster.Family) (backend.Clients, error) {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	var clients backend.Clients
	for _, f := range b.families {
		if f.table.Family() != dialectOf(family).nftFamily { // the schema may change meanwhile
			continue
		}
		table, err := nft.Open(dialectOf(family).nftFamily, TableName)
		if err == nil {
			err = errors.Join(f.clients.count(ctx, table, &clients), table.Close())
		}
		return clients, wrap(family, err)
	}
	return clients, nil
}
