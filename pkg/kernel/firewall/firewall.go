//go:build linux

// Package firewall reads the base chains of nf_tables, of any table and family, including other programs'. They include
// the chains of the nft variant of iptables, but not those of the legacy variant.
package firewall

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// Chain is a base chain of type filter.
type Chain struct {
	// Family is ip, ip6 or inet; Table and Name are as in `nft list ruleset`.
	Family, Table, Name string
	// Hook is forward, input, or the number of another hook.
	Hook string
	// Drops means that the policy is drop: a packet that no rule accepts is dropped.
	Drops bool
	// Rules is the number of rules; 0 for chains that do not drop, whose rules are not counted.
	Rules int
}

const policyDrop = 0 // NF_DROP of linux/netfilter.h

// Chains reads the base chains of type filter in the network namespace of the calling thread. It needs CAP_NET_ADMIN.
func Chains(ctx context.Context) (chains []Chain, err error) {
	err = netlink.Retry(ctx, func() error {
		chains, err = read()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the base chains of nf_tables: %w", netlink.WithAdvice(err, netlink.Advice))
	}
	return chains, nil
}

func read() (chains []Chain, err error) {
	socket, err := netlink.Open()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, socket.Close()) }()
	for _, family := range []struct {
		number uint8
		name   string
	}{{unix.NFPROTO_IPV4, "ip"}, {unix.NFPROTO_IPV6, "ip6"}, {unix.NFPROTO_INET, "inet"}} {
		header := netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETCHAIN, Family: family.number}
		first := len(chains)
		err := socket.Dump(header, nil, func(m netlink.Message) error {
			hook := m.Attr(unix.NFTA_CHAIN_HOOK)
			if hook != nil && m.AttrString(unix.NFTA_CHAIN_TYPE) == "filter" {
				policy := m.Attr(unix.NFTA_CHAIN_POLICY)
				chains = append(chains, Chain{Family: family.name, Table: m.AttrString(unix.NFTA_CHAIN_TABLE), Name: m.AttrString(unix.NFTA_CHAIN_NAME),
					Hook: hookName(netlink.Attr(hook, unix.NFTA_HOOK_HOOKNUM)), Drops: len(policy) == 4 && binary.BigEndian.Uint32(policy) == policyDrop})
			}
			return nil
		})
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return nil, err
		}
		for i := first; i < len(chains); i++ {
			if chains[i].Drops {
				if chains[i].Rules, err = rules(socket, family.number, &chains[i]); err != nil {
					return nil, err
				}
			}
		}
	}
	return chains, nil
}

func hookName(number []byte) string {
	if len(number) != 4 {
		return ""
	}
	switch n := binary.BigEndian.Uint32(number); n {
	case unix.NF_INET_LOCAL_IN:
		return "input"
	case unix.NF_INET_FORWARD:
		return "forward"
	default:
		return fmt.Sprint(n)
	}
}

// rules counts the rules of a chain.
func rules(socket *netlink.Socket, family uint8, chain *Chain) (count int, _ error) {
	header := netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETRULE, Family: family}
	err := socket.Dump(header, func(b []byte) []byte {
		b = netlink.AppendString(b, unix.NFTA_RULE_TABLE, chain.Table)
		return netlink.AppendString(b, unix.NFTA_RULE_CHAIN, chain.Name)
	}, func(m netlink.Message) error {
		if m.AttrString(unix.NFTA_RULE_TABLE) == chain.Table {
			count++
		}
		return nil
	})
	return count, err
}
