package ipt

import (
	"context"
	"fmt"
	"strings"
)

// Feature is a match or target of iptables that the rules of a service proxy need.
type Feature struct {
	// Name is, for example, "match statistic", and Module the kernel module that provides it.
	Name, Module string
	// Err is the reason if it does not work; nil if it does.
	Err error
}

const probeChain = "KUBE-PROXY-CHECK"

// features are rules; each is tried in a chain of its table.
func features(address string) []struct{ name, module, table, rule string } {
	return []struct{ name, module, table, rule string }{
		{"table filter", "iptable_filter", "filter", "-j RETURN"},
		{"table nat", "iptable_nat", "nat", "-j RETURN"},
		{"match comment", "xt_comment", "filter", `-m comment --comment "check" -j RETURN`},
		{"match conntrack", "xt_conntrack", "filter", "-m conntrack --ctstate NEW -j RETURN"},
		{"match mark", "xt_mark", "filter", "-m mark --mark 0x1/0x1 -j RETURN"},
		{"match addrtype", "xt_addrtype", "nat", "-m addrtype --dst-type LOCAL -j RETURN"},
		{"match statistic", "xt_statistic", "nat", "-m statistic --mode random --probability 0.5 -j RETURN"},
		{"match recent", "xt_recent", "nat", "-m recent --name KUBE-PROXY-CHECK --rcheck --seconds 10 --reap -j RETURN"},
		{"target MARK", "xt_mark", "nat", "-j MARK --or-mark 0x1"},
		{"target DNAT", "xt_nat", "nat", "-p tcp -m tcp -j DNAT --to-destination " + address},
		{"target MASQUERADE", "xt_MASQUERADE", "nat", "-j MASQUERADE"},
		{"target REJECT", "ipt_REJECT", "filter", "-j REJECT"},
	}
}

// Probe writes a rule with each feature. It leaves the last one behind, so t must be in a network namespace that is removed.
func Probe(ctx context.Context, t Tables) []Feature {
	address := "192.0.2.1:80"
	if t.Family() == IPv6 {
		address = "[2001:db8::1]:80"
	}
	var found []Feature
	for _, f := range features(address) {
		if t.Family() == IPv6 {
			f.module = strings.Replace(strings.Replace(f.module, "iptable_", "ip6table_", 1), "ipt_", "ip6t_", 1)
		}
		chain := probeChain
		if f.name == "target MASQUERADE" { // only valid after routing
			chain = "POSTROUTING"
		}
		input := fmt.Sprintf("*%s\n", f.table)
		if chain == probeChain {
			input += ":" + chain + " - [0:0]\n"
		}
		err := t.Restore(ctx, input+"-A "+chain+" "+f.rule+"\nCOMMIT\n")
		found = append(found, Feature{Name: f.name, Module: f.module, Err: err})
	}
	return found
}
