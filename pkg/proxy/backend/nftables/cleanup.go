package nftables

import (
	"context"
	"errors"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// CleanupAll removes the tables of both families from the network namespace that it is called in. Where there are none it
// does without the program nft: a machine that is served in another mode need not have it.
func CleanupAll(ctx context.Context) error {
	tables, err := openTables(nft.Open, []cluster.Family{cluster.IPv4, cluster.IPv6})
	if err != nil {
		return err
	}
	b := New(Options{}, tables...)
	return errors.Join(b.Cleanup(ctx), b.Close())
}

// Present reports whether there is a table of this mode, by whatever program.
func Present(ctx context.Context) (present bool, _ error) {
	tables, err := openTables(nft.Open, []cluster.Family{cluster.IPv4, cluster.IPv6})
	if err != nil {
		return false, err
	}
	var failed []error
	for _, table := range tables {
		objects, err := table.Objects(ctx)
		present = present || err == nil && objects.Exists
		failed = append(failed, err, table.Close())
	}
	return present, errors.Join(failed...)
}
