package nft

import (
	"context"

	"sigs.k8s.io/knftables"
)

// transactions creates transactions for a table. knftables has this method only on what runs them: nft(8), which may
// not be installed, or a fake, which is used for nothing else here.
type transactions struct{ factory *knftables.Fake }

func newTransactions(family knftables.Family, table string) transactions {
	return transactions{knftables.NewFake(family, table)}
}

// NewTransaction is part of [Table].
func (t transactions) NewTransaction() *knftables.Transaction { return t.factory.NewTransaction() }

// check returns the error that a transaction without operations holds, if any.
func (t transactions) check(ctx context.Context, tx *knftables.Transaction) error {
	return t.factory.Check(ctx, tx)
}
