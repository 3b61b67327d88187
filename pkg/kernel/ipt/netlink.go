package ipt

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// ErrBusy means that others changed the rules while they were read. Try again.
var ErrBusy = netlink.ErrInterrupted

// nftRequests asks nf_tables for the chains and rules of iptables-nft.
type nftRequests struct {
	*nf.Conn
	family Family
	listed chainList
}

// chainList holds the names of the chains in the tables that were not asked for since one dump, of a generation. A dump always
// returns those of all tables, and takes time that grows with their square: the kernel begins at the first one again for every 32 KiB.
type chainList struct {
	generation nf.Generation
	tables     map[string][]string
}

func openNFTRequests(family Family) (*nftRequests, error) {
	conn, err := nf.Open()
	return &nftRequests{conn, family, chainList{}}, err
}

// eachChain reads the chains of a table one by one: all of them, or those given. The dump of a whole table begins at its first rule
// again for every 32 KiB, which at 10,000 Services takes half as long again (0.45 s of a processor, not 0.29 s). It calls read again
// for a chain if others write meanwhile.
func (r *nftRequests) eachChain(ctx context.Context, table string, given []string, read func(chain string) error) error {
	names := given
	if len(given) == 0 {
		err := netlink.Retry(ctx, func() (err error) {
			names, err = r.chains(table)
			return err
		})
		if err != nil {
			return err
		}
	}
	for _, name := range names {
		err := netlink.Retry(ctx, func() error {
			if len(given) > 0 || isBuiltin(name) {
				if exists, err := r.exists(table, name); !exists {
					return err
				}
			}
			return read(name)
		})
		if err := errors.Join(err, ctx.Err()); err != nil {
			return err
		}
	}
	return nil
}

// nftChains returns the names of a table's chains, on a socket of its own.
func nftChains(family Family, table string) ([]string, error) {
	r, err := openNFTRequests(family)
	if err != nil {
		return nil, err
	}
	chains, err := r.chains(table)
	return chains, errors.Join(err, r.Close())
}

// chains returns the names of all chains of a table.
func (r *nftRequests) chains(table string) ([]string, error) {
	generation, err := r.Generation()
	if err != nil {
		return nil, readError(err)
	}
	names, known := r.listed.tables[table]
	if !known || r.listed.generation != generation {
		tables := map[string][]string{}
		err := existing(r.Chains(r.family.Number(), "", func(table string, c nf.Chain) {
			tables[table] = append(tables[table], c.Name)
		}))
		if err != nil {
			return nil, err
		}
		r.listed, names = chainList{generation, tables}, tables[table]
	}
	delete(r.listed.tables, table)
	return names, nil
}

// exists reports whether a table has a chain: a built-in one that packets meet.
func (r *nftRequests) exists(table, name string) (bool, error) {
	found, err := r.Chain(r.family.Number(), table, name)
	if err != nil || !isBuiltin(name) {
		return found.Name == name, existing(err)
	}
	dormant, err := r.Dormant(r.family.Number(), table)
	return !dormant && hooked(table, found), existing(err)
}

// hooked reports whether a built-in chain has the hook that it is named after.
func hooked(table string, c nf.Chain) bool {
	return c.Type != "" && (c.Type == "nat") == (table == "nat") && nf.HookName(nf.IPv4, c.Hook) == strings.ToLower(c.Name)
}

// nftPackets reads the counters of chains' rules on a socket of its own.
func nftPackets(ctx context.Context, open func() (*nf.Conn, error), family Family, table string, chains []string) (map[string][]uint64, error) {
	conn, err := open()
	if err != nil {
		return nil, err
	}
	r := &nftRequests{Conn: conn, family: family}
	packets := map[string][]uint64{}
	for _, chain := range chains {
		var of []uint64
		err := r.rules(table, chain, func(rule nf.Rule) { of = append(of, counted(rule.Expressions())) })
		if err := errors.Join(err, ctx.Err()); err != nil {
			return nil, errors.Join(err, r.Close())
		}
		packets[chain] = of
	}
	return packets, r.Close()
}

// counted returns what the counter among a rule's expressions counted. A rule without one, which iptables never makes,
// counts 0.
func counted(expressions netlink.Attrs) uint64 {
	for expressions.Next() {
		if packets, _, ok := nf.Counts(expressions.Data); ok {
			return packets
		}
	}
	return 0
}

// rules visits the rules of a chain.
func (r *nftRequests) rules(table, chain string, visit func(nf.Rule)) error {
	return existing(r.Rules(r.family.Number(), table, chain, visit))
}

// existing drops the error that an object does not exist: a table that is not there has no chains, and no rules.
func existing(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return readError(err)
}

// readError adds the operation and advice to an error.
func readError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("read from nf_tables: %w", netlink.WithAdvice(err, nf.Advice))
}
