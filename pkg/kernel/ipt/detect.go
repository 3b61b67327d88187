package ipt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
)

// hints are the chains that a kubelet creates, in the table mangle, in the variant that the node uses (KEP-3178; before
// Kubernetes 1.24 only the second).
var hints = []string{"KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY"}

// Detect returns the variant that this node uses: the one with the kubelet's hint, nft before legacy; or else the one with
// any chain of Kubernetes; or else nft, if it is installed. It changes nothing: it reads only existing tables of the legacy
// variant, because reading creates them.
func Detect(ctx context.Context) (Variant, error) {
	installed := map[Variant]bool{}
	var failed []error
	for _, variant := range []Variant{NFT, Legacy} {
		_, err := find(ctx, IPv4, variant)
		installed[variant] = err == nil
		failed = append(failed, err)
	}
	if !installed[NFT] && !installed[Legacy] {
		return "", errors.Join(failed...)
	}
	for _, look := range []struct {
		table string
		tells func(chain string) bool
	}{
		{"mangle", func(chain string) bool { return slices.Contains(hints, chain) }},
		{"nat", func(chain string) bool { return strings.HasPrefix(chain, "KUBE-") }},
	} {
		holding, err := Holding(ctx, []Family{IPv4, IPv6}, []string{look.table}, func(_, chain string) bool { return look.tells(chain) })
		unknown := errors.Is(err, ErrBusy) || ctx.Err() != nil // a table that cannot be read for another reason counts for nothing
		for _, variant := range holding {
			if installed[variant] && (variant == NFT || !unknown) {
				return variant, nil
			}
		}
		if unknown {
			return "", fmt.Errorf("find out which variant of iptables this node uses: %w", err)
		}
	}
	if installed[NFT] {
		return NFT, nil
	}
	return Legacy, nil
}

// Holding returns the variants that have a chain for which counts returns true, in any of the tables of these families. It
// reads from the kernel, so that it finds chains even if there is no program to remove them; and it creates no table.
func Holding(ctx context.Context, families []Family, tables []string, counts func(table, chain string) bool) ([]Variant, error) {
	var holding []Variant
	var failed []error
	for _, variant := range []Variant{NFT, Legacy} {
		found := false
		for _, family := range families {
			for _, table := range tables {
				chains, err := chainsIn(ctx, family, variant, table)
				if err != nil {
					failed = append(failed, fmt.Errorf("look for chains of iptables %s, variant %s, table %s: %w", family, variant, table, err))
				}
				found = found || slices.ContainsFunc(chains, func(chain string) bool { return counts(table, chain) })
			}
		}
		if found {
			holding = append(holding, variant)
		}
	}
	return holding, errors.Join(failed...)
}

// chainsIn returns a table's chains, none if there is no such table, without a program: iptables-nft-save takes half a minute
// for 45,000 chains, because it sorts them into a list.
func chainsIn(ctx context.Context, family Family, variant Variant, table string) (names []string, err error) {
	read := nftChains
	if variant == Legacy {
		read = legacyChains
	}
	err = netlink.Retry(ctx, func() (err error) {
		names, err = read(family, table)
		return err
	})
	return names, err
}
