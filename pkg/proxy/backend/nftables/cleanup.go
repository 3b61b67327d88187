package nftables

import (
	"context"

	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
)

// cleanup removes a table with everything in it; that there is none is fine.
func cleanup(ctx context.Context, table nft.Table) error {
	objects, err := table.Objects(ctx)
	if err != nil || !objects.Exists {
		return err
	}
	tx := table.NewTransaction()
	tx.Delete(&knftables.Table{})
	return table.Run(ctx, tx)
}
