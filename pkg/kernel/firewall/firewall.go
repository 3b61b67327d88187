//go:build linux

// Package firewall reads the base chains of nf_tables, of any table and family, including other programs'. They include
// the chains of the nft variant of iptables, but not those of the legacy variant.
package firewall

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// Chain is a base chain of type filter.
type Chain struct {
	// Family is ip, ip6 or inet; Table and Name are as in `nft list ruleset`.
	Family, Table, Name string
	// Hook is forward, input or the like.
	Hook string
	// Drops means that the policy is drop: a packet that no rule accepts is dropped.
	Drops bool
	// Rules is the number of rules; 0 for chains that do not drop, whose rules are not counted.
	Rules int
}

// Chains reads the base chains of type filter in the network namespace of the calling thread. It needs CAP_NET_ADMIN.
func Chains(ctx context.Context) (chains []Chain, err error) {
	conn, err := nf.Open()
	if err == nil {
		err = netlink.Retry(ctx, func() error {
			chains, err = read(conn)
			return err
		})
		err = errors.Join(err, conn.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("list the base chains of nf_tables: %w", netlink.WithAdvice(err, nf.Advice))
	}
	return chains, nil
}

func read(conn *nf.Conn) (chains []Chain, err error) {
	for _, family := range []nf.Family{nf.IPv4, nf.IPv6, nf.Inet} {
		first := len(chains)
		err := conn.Chains(family, "", func(table string, c nf.Chain) {
			if c.Type == "filter" {
				chains = append(chains, Chain{Family: family.String(), Table: table, Name: c.Name, Hook: nf.HookName(family, c.Hook), Drops: c.Drops})
			}
		})
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return nil, err
		}
		for i := first; i < len(chains); i++ {
			if c := &chains[i]; c.Drops {
				if err := conn.Rules(family, c.Table, c.Name, func(nf.Rule) { c.Rules++ }); err != nil {
					return nil, err
				}
			}
		}
	}
	return chains, nil
}
