package iptables

import "net/netip"

func addrs(texts ...string) []netip.Addr {
	var all []netip.Addr
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}
