package cluster

import (
	"fmt"
	"net/netip"

	netutils "k8s.io/utils/net"
)

// ParseAddr reads an address the way the API server does, which lets leading zeros pass. An IPv4 address that is written as
// an IPv6 one is IPv4's.
func ParseAddr(text string) (netip.Addr, error) {
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
		return addr.Unmap(), nil // as nearly all of them
	}
	ip := netutils.ParseIPSloppy(text)
	addr, ok := netip.AddrFromSlice(ip)
	if !ok {
		return netip.Addr{}, fmt.Errorf("%q is not an IP address", text)
	}
	return addr.Unmap(), nil
}

// mappedBits is the length of ::ffff:0:0/96, the range of IPv4 addresses that are written as IPv6 ones.
const mappedBits = 96

// ParsePrefix reads a CIDR the way the API server does, which lets leading zeros and host bits pass; the latter are cleared.
// A range of IPv4 addresses that is written as an IPv6 one is IPv4's: ::ffff:10.0.0.0/104 is 10.0.0.0/8.
func ParsePrefix(text string) (netip.Prefix, error) {
	_, network, err := netutils.ParseCIDRSloppy(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is not a CIDR", text)
	}
	addr, _ := netip.AddrFromSlice(network.IP)
	bits, _ := network.Mask.Size()
	if addr.Is4In6() { // and so has at least these bits
		bits -= mappedBits
	}
	return netip.PrefixFrom(addr.Unmap(), bits), nil
}
