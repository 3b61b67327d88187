//go:build linux

package nf

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// FilterChain is a base chain of type filter, of any table and family, also another program's. The chains of the nft variant of iptables
// are such, those of the legacy variant are not.
type FilterChain struct {
	// Family is ip, ip6 or inet; Table and Name are as in `nft list ruleset`.
	Family, Table, Name string
	// Hook is forward, input or the like.
	Hook string
	// Drops means that the policy is drop: a packet that no rule accepts is dropped.
	Drops bool
	// Rules is the number of rules; 0 for chains that do not drop, whose rules are not counted.
	Rules int
}

// FilterChains reads those of the network namespace of the calling thread. It needs CAP_NET_ADMIN.
func FilterChains(ctx context.Context) (chains []FilterChain, err error) {
	conn, err := Open()
	if err == nil {
		err = netlink.Retry(ctx, func() error {
			chains, err = conn.FilterChains()
			return err
		})
		err = errors.Join(err, conn.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("list the base chains of nf_tables: %w", netlink.WithAdvice(err, Advice))
	}
	return chains, nil
}

// FilterChains reads all once.
func (c *Conn) FilterChains() (chains []FilterChain, err error) {
	for _, family := range []Family{IPv4, IPv6, Inet} {
		first := len(chains)
		err := c.Chains(family, "", func(table string, chain Chain) {
			if chain.Type == "filter" {
				chains = append(chains, FilterChain{Family: family.String(), Table: table, Name: chain.Name, Hook: HookName(family, chain.Hook), Drops: chain.Drops})
			}
		})
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return nil, err
		}
		for i := first; i < len(chains); i++ {
			if of := &chains[i]; of.Drops {
				if err := c.Rules(family, of.Table, of.Name, func(Rule) { of.Rules++ }); err != nil {
					return nil, err
				}
			}
		}
	}
	return chains, nil
}
