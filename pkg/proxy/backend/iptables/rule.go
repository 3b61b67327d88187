package iptables

import (
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// line is a rule of a chain.
type line struct {
	ipt.Rule
	// owner is the port of a Service that the rule is for; zero if it is for all.
	owner portKey
}

// body is the lines of a chain, or of one frontend in it. They are made each time that they are asked for: those of 45,000 Services
// have 40 MB, and what they are made of is in the plan. The zero value has none.
type body struct {
	// count is their number.
	count int
	make  func() []line
}

// made returns the body that a function makes, always the same.
func made(lines func() []line) body { return body{len(lines()), lines} }

// kept returns a body that is in memory: of few lines, or of what was read.
func kept(lines []line) body { return body{len(lines), func() []line { return lines }} }

// lines makes the lines.
func (b body) lines() []line {
	if b.count == 0 {
		return nil
	}
	return b.make()
}

// equal reports whether two bodies have the same lines.
func (b body) equal(o body) bool {
	return b.count == o.count && slices.EqualFunc(b.lines(), o.lines(), line.equal)
}

// lines returns rules without an owner.
func lines(rules ...ipt.Rule) []line {
	var all []line
	for _, r := range rules {
		all = append(all, line{Rule: r})
	}
	return all
}

// equal reports whether two rules are for the same port, and the same text.
func (l line) equal(o line) bool { return l.owner == o.owner && l.Text() == o.Text() }

// source and destination match ranges of addresses. The range of all addresses needs no match.
func source(p netip.Prefix) ipt.Match {
	if p.Bits() == 0 {
		return nil
	}
	return ipt.Source(p.Masked())
}

func destination(p netip.Prefix) ipt.Match {
	if p.Bits() == 0 {
		return nil
	}
	return ipt.Destination(p.Masked())
}

// host returns the range of one address.
func host(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, addr.BitLen()) }

func protocol(p cluster.Protocol) ipt.Protocol {
	return [...]ipt.Protocol{cluster.TCP: ipt.TCP, cluster.UDP: ipt.UDP, cluster.SCTP: ipt.SCTP}[p]
}

// dport matches a protocol's destination ports from the first to the last.
func dport(p cluster.Protocol, first, last uint16) ipt.Match {
	return ipt.Ports{Protocol: protocol(p), First: first, Last: last}
}

// maxComment is enough for the longest name and its suffix; the kernel's limit is ipt.MaxComment.
const maxComment = 240

// comment matches every packet. The API server validates names; the result is a single quoted word for any text.
func comment(text string) ipt.Match {
	safe := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(" /:._-", r) {
			return r
		}
		return '_'
	}, text)
	return ipt.Comment(safe[:min(len(safe), maxComment)])
}

// chance matches with a probability of one in n. The kernel keeps 31 bits of it.
func chance(n int) ipt.Chance { return ipt.Chance(math.Round((1 << 31) / float64(n))) }

// doorFamily converts a family to that of package ipt.
func doorFamily(family cluster.Family) ipt.Family {
	if family == cluster.IPv6 {
		return ipt.IPv6
	}
	return ipt.IPv4
}
