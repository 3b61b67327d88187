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

// chainCheck has rules for a trial.
const chainCheck = "KUBE-PROXY-CHECK"

// FastPath is part of [backend.Mode].
func (Mode) FastPath(context.Context, ...cluster.Family) error {
	return errors.New("mode iptables has none")
}

// Fences is part of [backend.Mode]. It writes a chain that nothing jumps to, and deletes it.
func (Mode) Fences(ctx context.Context, families ...cluster.Family) error {
	variant, err := ipt.Detect(ctx)
	for _, family := range families {
		if err == nil {
			err = tryFence(ctx, variant, family)
		}
	}
	return err
}

func tryFence(ctx context.Context, variant ipt.Variant, family cluster.Family) (err error) {
	tables, err := ipt.Open(ctx, doorFamily(family), variant)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tables.Close()) }()
	bits := 32
	if family == cluster.IPv6 {
		bits = 128
	}
	every := fence{bounds: *cluster.EveryBound()}
	chain := ipt.Chain{Name: chainCheck, Rules: every.rules(bits)}
	if err := tables.Write(ctx, &ipt.Transaction{Table: tableFilter, Chains: []ipt.Chain{chain}}); err != nil {
		return fmt.Errorf("try limits (kernel modules xt_hashlimit and xt_connlimit): %w", err)
	}
	return tables.Write(ctx, &ipt.Transaction{Table: tableFilter, Deleted: []string{chainCheck}})
}

// Features is part of [backend.Prober]. It also creates the chain by which Open detects the variant, as the kubelet does.
func (Mode) Features(ctx context.Context, variant string, family cluster.Family) (features []backend.Feature, err error) {
	tables, err := ipt.Open(ctx, doorFamily(family), ipt.Variant(variant))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, tables.Close()) }()
	of, address := "ip", "192.0.2.1:80" // the first letters of some modules
	if family == cluster.IPv6 {
		of, address = "ip6", "[2001:db8::1]:80"
	}
	for _, f := range []struct{ name, module, table, rule string }{
		{"table filter", of + "table_filter", tableFilter, "-j RETURN"},
		{"table nat", of + "table_nat", tableNAT, "-j RETURN"},
		{"match comment", "xt_comment", tableFilter, `-m comment --comment "check" -j RETURN`},
		{"match conntrack", "xt_conntrack", tableFilter, "-m conntrack --ctstate NEW -j RETURN"},
		{"match mark", "xt_mark", tableFilter, "-m mark --mark 0x1/0x1 -j RETURN"},
		{"match addrtype", "xt_addrtype", tableNAT, "-m addrtype --dst-type LOCAL -j RETURN"},
		{"match statistic", "xt_statistic", tableNAT, "-m statistic --mode random --probability 0.5 -j RETURN"},
		{"match recent", "xt_recent", tableNAT, "-m recent --name KUBE-PROXY-CHECK --rcheck --seconds 10 --reap -j RETURN"},
		{"target MARK", "xt_mark", tableNAT, "-j MARK --or-mark 0x1"},
		{"target DNAT", "xt_nat", tableNAT, "-p tcp -m tcp -j DNAT --to-destination " + address},
		{"target MASQUERADE", "xt_MASQUERADE", tableNAT, "-j MASQUERADE"},
		{"target REJECT", of + "t_REJECT", tableFilter, "-j REJECT"},
	} {
		chain := ipt.Chain{Name: chainCheck, Rules: []ipt.Rule{ipt.Listed(f.rule)}}
		err := tables.Write(ctx, &ipt.Transaction{Table: f.table, Chains: []ipt.Chain{chain}})
		features = append(features, backend.Feature{Name: f.name, Module: f.module, Err: err})
	}
	if err := tables.Write(ctx, &ipt.Transaction{Table: tableMangle, Chains: []ipt.Chain{{Name: "KUBE-IPTABLES-HINT"}}}); err != nil {
		return features, fmt.Errorf("choose the variant %s: %w", variant, err)
	}
	return features, nil
}
