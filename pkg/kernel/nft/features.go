package nft

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"sigs.k8s.io/knftables"
)

// Feature is a feature of nf_tables that the rules of a service proxy need.
type Feature struct {
	// Name describes it, and Module is the kernel module that provides it.
	Name, Module string
	// Err is the reason if it does not work; nil if it does.
	Err error
}

// features are rules in nft's language for the family %[1]s with the address type %[2]s, each with the objects that it needs.
func features() []struct{ name, module, text string } {
	return []struct{ name, module, text string }{
		{"tables", "nf_tables", ""},
		{"nat chains", "nft_chain_nat", "chain c { type nat hook prerouting priority -100; }"},
		{"verdict maps", "nf_tables", "map m { type %[2]s . inet_proto . inet_service : verdict; counter; }\nchain c { %[1]s daddr . meta l4proto . th dport vmap @m; }"},
		{"translation of destinations", "nft_nat", "chain d { type nat hook prerouting priority -100; }\n" +
			"chain c { meta l4proto tcp dnat to %[3]s; }"},
		{"random numbers", "nft_numgen", "chain a { }\nchain c { numgen random mod 2 vmap { 0 : goto a, 1 : goto a }; }"},
		{"masquerading", "nft_masq", "chain c { type nat hook postrouting priority 100; masquerade fully-random; }"},
		{"rejection", "nft_reject", "chain c { type filter hook forward priority 0; reject; }"},
		{"connection tracking", "nft_ct", "chain c { ct state new ct status dnat ct original %[1]s daddr %[3]s accept; }"},
		{"memory of clients", "nf_tables", "set s { type %[2]s; flags dynamic, timeout; timeout 1s; size 100; }\nchain c { update @s { %[1]s saddr }; }"},
	}
}

// Probe tries each feature with `nft --check`, which writes nothing. It may load
// modules, as writing the rules does. The error means that nft is missing.
func Probe(ctx context.Context, family knftables.Family) ([]Feature, error) {
	if _, err := exec.LookPath("nft"); err != nil {
		return nil, withInstall(err)
	}
	kind, address := "ipv4_addr", "192.0.2.1"
	if family == knftables.IPv6Family {
		kind, address = "ipv6_addr", "2001:db8::1"
	}
	var found []Feature
	for _, f := range features() {
		text := strings.NewReplacer("%[1]s", string(family), "%[2]s", kind, "%[3]s", address).Replace(f.text)
		err := check(ctx, fmt.Sprintf("table %s kube-proxy-check {\n%s\n}\n", family, text))
		found = append(found, Feature{Name: f.name, Module: f.module, Err: err})
	}
	return found, nil
}

// Version returns what `nft --version` prints after the program's name, such as "v1.0.6 (Lester Gooch #5)".
func Version(ctx context.Context) (string, error) {
	out, err := run(ctx, "", "--version")
	return strings.TrimPrefix(strings.TrimSpace(out), "nftables "), err
}
