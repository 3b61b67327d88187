package nftables

import (
	"context"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Tools is part of [backend.Prober].
func (Mode) Tools(ctx context.Context, _ ...cluster.Family) []backend.Tool {
	version, err := nft.Version(ctx)
	return []backend.Tool{{Name: "nft", Version: version, Err: err}}
}

// Variant is part of [backend.Prober]. There is only one.
func (Mode) Variant(context.Context) (string, error) { return "", nil }

// Features is part of [backend.Prober].
func (Mode) Features(ctx context.Context, _ string, family cluster.Family) ([]backend.Feature, error) {
	found, err := nft.Probe(ctx, dialectOf(family).nftFamily)
	var features []backend.Feature
	for _, f := range found {
		features = append(features, backend.Feature(f))
	}
	return features, err
}
