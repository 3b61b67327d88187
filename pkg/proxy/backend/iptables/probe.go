package iptables

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Tools is part of [backend.Prober].
func (Mode) Tools(ctx context.Context, families ...cluster.Family) []backend.Tool {
	variant, err := ipt.Detect(ctx)
	if err != nil {
		return []backend.Tool{{Name: "iptables", Err: err}}
	}
	var tools []backend.Tool
	for _, family := range families {
		version, err := ipt.Version(ctx, doorFamily(family), variant)
		tools = append(tools, backend.Tool{Name: fmt.Sprintf("iptables for %s, variant %s:", family, variant), Version: version, Err: err})
	}
	return tools
}

// Variant is part of [backend.Prober]: nft or legacy.
func (Mode) Variant(ctx context.Context) (string, error) {
	variant, err := ipt.Detect(ctx)
	return string(variant), err
}

// Features is part of [backend.Prober]. It also creates the chain by which Open detects the variant, as the kubelet does.
func (Mode) Features(ctx context.Context, variant string, family cluster.Family) (features []backend.Feature, err error) {
	tables, err := ipt.Open(ctx, doorFamily(family), ipt.Variant(variant))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, tables.Close()) }()
	for _, f := range ipt.Probe(ctx, tables) {
		features = append(features, backend.Feature(f))
	}
	if err := tables.Write(ctx, &ipt.Transaction{Table: tableMangle, Chains: []ipt.Chain{{Name: "KUBE-IPTABLES-HINT"}}}); err != nil {
		return features, fmt.Errorf("choose the variant %s: %w", variant, err)
	}
	return features, nil
}
