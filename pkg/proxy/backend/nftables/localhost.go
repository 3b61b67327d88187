package nftables

import (
	"context"
	"errors"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// RejectedOnLocalhost reads how many packets of a family were rejected that were for a node port on a loopback address,
// by protocol and since the table was made; nothing before that. Any goroutine in the backend's network namespace may call
// it at any time.
func RejectedOnLocalhost(ctx context.Context, family cluster.Family) (map[cluster.Protocol]uint64, error) {
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
