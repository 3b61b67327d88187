package nftables

import (
	"context"
	"errors"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

var (
	_ backend.RejectCounter = (*Backend)(nil)
	_ backend.MetricNamer   = (*Backend)(nil)
	_ backend.ClientCounter = (*Backend)(nil)
)

// MetricNames implements [backend.MetricNamer].
func (*Backend) MetricNames() backend.MetricNames {
	return backend.MetricNames{
		SyncFailures:            "sync_proxy_rules_nftables_sync_failures_total",
		CleanupFailures:         "sync_proxy_rules_nftables_cleanup_failures_total",
		LocalhostRejected:       "nftables_localhost_nodeport_rejected_packets_total",
		LocalhostListeners:      "nftables_localhost_nodeport_listeners",
		LocalhostListenFailures: "nftables_localhost_nodeport_listener_creation_failures_total",
	}
}

// readTimeout limits the time to read the counters.
const readTimeout = 2 * time.Second

// LocalhostRejected implements [backend.RejectCounter]. It opens the table again, because the backend's tables belong to
// another goroutine.
func (*Backend) LocalhostRejected(family cluster.Family) (map[cluster.Protocol]uint64, error) {
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

// Clients implements [backend.ClientCounter]. It opens the table again, because the backend's tables belong to another goroutine.
func (b *Backend) Clients(family cluster.Family) (backend.Clients, error) {
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
