package ipt

import (
	"context"
	"fmt"
	"slices"
)

// Policy is the policy of a built-in chain.
type Policy struct {
	Drops bool
	Rules int
}

// Policies returns the policies of the chains INPUT and FORWARD of the table filter of the legacy variant, and how many rules they have.
// It does not create the table; without it there are none.
func Policies(ctx context.Context, family Family) (map[string]Policy, error) {
	if !legacyTableExists(family, "filter") {
		return nil, nil
	}
	found, err := find(ctx, family, Legacy)
	if err != nil {
		return nil, err
	}
	policies := map[string]Policy{}
	err = leave(ctx, func() error {
		for _, chain := range []string{"INPUT", "FORWARD"} {
			lines, err := found.plain.List("filter", chain) // its policy and its rules
			if err != nil {
				return err
			}
			policies[chain] = Policy{Drops: slices.Contains(lines, "-P "+chain+" DROP"), Rules: len(lines) - 1}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("iptables %s: list the chains of table filter: %w", family, err)
	}
	return policies, nil
}
