package nftables

import (
	"context"
	"fmt"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Tools is part of [backend.Prober].
func (Mode) Tools(ctx context.Context, _ ...cluster.Family) []backend.Tool {
	version, err := nft.Version(ctx)
	return []backend.Tool{{Name: "nft", Version: version, Err: err}}
}

// Variant is part of [backend.Prober]. There is only one.
func (Mode) Variant(context.Context) (string, error) { return "", nil }

// FastPath is part of [backend.Mode]. Before Linux 6.1.32 and 6.3 the entries of
// connections on the fast path cannot be deleted; 6.1 stands for both, because distributions do not say which patches it has.
func (Mode) FastPath(ctx context.Context, families ...cluster.Family) error {
	if err := nft.KernelSince("6.1"); err != nil {
		return err
	}
	for _, family := range families {
		err := try(ctx, family, "flowtable f { hook ingress priority 0; counter; }\n"+
			fmt.Sprintf("chain c { type filter hook forward priority 0; ct packets > %d flow add @f; }", plan.FastPathAfter))
		if err != nil {
			return fmt.Errorf("try a flowtable (kernel modules nf_flow_table and nft_flow_offload): %w", err)
		}
	}
	return nil
}

// try checks whether the kernel has what some objects of a table need. It writes nothing.
func try(ctx context.Context, family cluster.Family, objects string) error {
	d, address := dialectOf(family), "192.0.2.1"
	if family == cluster.IPv6 {
		address = "2001:db8::1"
	}
	spelled := strings.NewReplacer("$ip", d.ip, "$type", d.addr, "$address", address)
	return nft.Check(ctx, fmt.Sprintf("table %s kube-proxy-check {\n%s\n}\n", d.ip, spelled.Replace(objects)))
}

// Fences is part of [backend.Mode].
func (Mode) Fences(ctx context.Context, families ...cluster.Family) error {
	for _, family := range families {
		err := try(ctx, family, "set r { type $type; flags dynamic, timeout; size 1; }\nset o { type $type; flags dynamic; size 1; }\n"+
			"chain c { update @r { $ip saddr timeout 2s limit rate over 1/second burst 1 packets }; limit rate over 1/second burst 1 packets;\n"+
			"add @o { $ip saddr ct count over 1 }; ct count over 1; }")
		if err != nil {
			return fmt.Errorf("try limits (kernel modules nft_limit and nft_connlimit): %w", err)
		}
	}
	return nil
}

// Features is part of [backend.Prober]. It writes nothing, but may load modules, as writing the rules does.
func (Mode) Features(ctx context.Context, _ string, family cluster.Family) (features []backend.Feature, _ error) {
	if _, err := nft.Version(ctx); err != nil {
		return nil, err
	}
	for _, f := range []struct{ name, module, objects string }{
		{"tables", "nf_tables", ""},
		{"nat chains", "nft_chain_nat", "chain c { type nat hook prerouting priority -100; }"},
		{"verdict maps", "nf_tables", "map m { type $type . inet_proto . inet_service : verdict; counter; }\nchain c { $ip daddr . meta l4proto . th dport vmap @m; }"},
		{"translation of destinations", "nft_nat", "chain d { type nat hook prerouting priority -100; }\nchain c { meta l4proto tcp dnat to $address; }"},
		{"random numbers", "nft_numgen", "chain a { }\nchain c { numgen random mod 2 vmap { 0 : goto a, 1 : goto a }; }"},
		{"masquerading", "nft_masq", "chain c { type nat hook postrouting priority 100; masquerade fully-random; }"},
		{"rejection", "nft_reject", "chain c { type filter hook forward priority 0; reject; }"},
		{"connection tracking", "nft_ct", "chain c { ct state new ct status dnat ct original $ip daddr $address accept; }"},
		{"memory of clients", "nf_tables", "set s { type $type; flags dynamic, timeout; timeout 1s; size 100; }\nchain c { update @s { $ip saddr }; }"},
	} {
		features = append(features, backend.Feature{Name: f.name, Module: f.module, Err: try(ctx, family, f.objects)})
	}
	return features, nil
}
