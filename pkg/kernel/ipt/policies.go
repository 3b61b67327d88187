package ipt

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// Policy is the policy of a built-in chain.
type Policy struct {
	Drops bool
	Rules int
}

// Policies returns the policies of the chains INPUT and FORWARD of the table filter of the legacy variant, and how many rules they have.
// It does not create the table; without it there are none. It runs no program: checks call it all the time, and each that hangs would be
// left behind.
func Policies(ctx context.Context, family Family) (policies map[string]Policy, _ error) {
	if !legacyTableExists(family, "filter") {
		return nil, nil
	}
	err := netlink.Retry(ctx, func() error {
		entries, i, err := legacyEntries(family, "filter")
		if err != nil {
			return err
		}
		rules, err := layoutOf(family).counts(entries, i)
		policies = map[string]Policy{}
		for _, hook := range []int{unix.NF_INET_LOCAL_IN, unix.NF_INET_FORWARD} {
			chain := Builtin()[hook]
			policies[chain] = Policy{Drops: layoutOf(family).drops(entries, i.policy[hook]), Rules: len(rules[chain])}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("iptables %s: read the policies of table filter: %w", family, err)
	}
	return policies, nil
}
