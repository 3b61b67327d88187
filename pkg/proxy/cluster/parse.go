package cluster

import (
	"errors"
	"fmt"
	"net/netip"

	netutils "k8s.io/utils/net"
)

// maxQuoted is the length in bytes of the longest invalid text that an error contains whole.
const maxQuoted = 100

// brief cuts an invalid text for an error, which is logged: its author may have made it very long.
func brief(text string) string {
	if len(text) <= maxQuoted {
		return text
	}
	return text[:maxQuoted] + "..."
}

// ParseAddr parses an address as the API server does: leading zeros are allowed. An IPv4-mapped IPv6 address is
// returned as IPv4.
func ParseAddr(text string) (netip.Addr, error) {
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
		return addr.Unmap(), nil // the common case
	}
	ip := netutils.ParseIPSloppy(text)
	addr, ok := netip.AddrFromSlice(ip)
	if !ok {
		return netip.Addr{}, fmt.Errorf("%q is not an IP address", brief(text))
	}
	return addr.Unmap(), nil
}

// mappedBits is the length of ::ffff:0:0/96, the range of IPv4-mapped IPv6 addresses.
const mappedBits = 96

// ParsePrefix parses a CIDR as the API server does: leading zeros and host bits are allowed; host bits are cleared.
// An IPv4-mapped IPv6 range is returned as IPv4: ::ffff:10.0.0.0/104 is 10.0.0.0/8.
func ParsePrefix(text string) (netip.Prefix, error) {
	_, network, err := netutils.ParseCIDRSloppy(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is not a CIDR", brief(text))
	}
	addr, _ := netip.AddrFromSlice(network.IP)
	bits, _ := network.Mask.Size()
	if addr.Is4In6() { // so bits >= mappedBits
		bits -= mappedBits
	}
	return netip.PrefixFrom(addr.Unmap(), bits), nil
}

// ParseAddrs parses addresses with [ParseAddr]. The error joins those of all addresses that are invalid.
func ParseAddrs(texts []string) ([]netip.Addr, error) { return parseAll(texts, ParseAddr) }

// ParsePrefixes parses CIDRs with [ParsePrefix]. The error joins those of all CIDRs that are invalid.
func ParsePrefixes(texts []string) ([]netip.Prefix, error) { return parseAll(texts, ParsePrefix) }

// parseAll returns the values of all texts that are valid.
func parseAll[T any](texts []string, parse func(string) (T, error)) ([]T, error) {
	var values []T
	var failed []error
	for _, text := range texts {
		value, err := parse(text)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		values = append(values, value)
	}
	return values, errors.Join(failed...)
}
