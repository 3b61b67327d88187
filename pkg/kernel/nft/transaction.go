package nft

import (
	"errors"
	"strings"

	"sigs.k8s.io/knftables"
)

// transactions creates transactions for a table. knftables has this method only on what runs them: its own runner of nft(8),
// which runs the program several times before the first transaction, or a fake, which is used for nothing else here.
type transactions struct{ factory *knftables.Fake }

func newTransactions(family knftables.Family, table string) transactions {
	return transactions{knftables.NewFake(family, table)}
}

// NewTransaction is part of [Table].
func (t transactions) NewTransaction() *knftables.Transaction { return t.factory.NewTransaction() }

// commands returns a transaction in nft's language, or the error of an operation that was added to it.
func commands(tx *knftables.Transaction) (string, error) {
	const failed = "# ERROR: " // knftables has no other way to ask for the error
	text := tx.String()
	if cause, found := strings.CutPrefix(text[strings.LastIndexByte(text, '\n')+1:], failed); found {
		return "", errors.New(cause)
	}
	return text, nil
}
