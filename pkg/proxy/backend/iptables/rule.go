package iptables

import (
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// body is the rules of a chain, or of one frontend in it. They are made each time that they are asked for: those of 45,000 Services
// have 40 MB, and what they are made of is in the plan. The zero value has none.
type body struct {
	// count is their number, which is known without making them.
	count int
	// add appends them, always the same.
	add func(to []ipt.Rule) []ipt.Rule
}

// kept returns a body that is in memory: of few rules, or of what was read.
func kept(rules []ipt.Rule) body {
	return body{len(rules), func(to []ipt.Rule) []ipt.Rule { return append(to, rules...) }}
}

// rules makes the rules.
func (b body) rules() []ipt.Rule { return b.appendTo(make([]ipt.Rule, 0, b.count)) }

// appendTo makes the rules, and appends them.
func (b body) appendTo(to []ipt.Rule) []ipt.Rule {
	if b.count == 0 {
		return to
	}
	return b.add(to)
}

// equal reports whether two bodies have the same rules, or equivalent ones.
func (b body) equal(o body) bool {
	return b.count == o.count && slices.EqualFunc(b.rules(), o.rules(), ipt.Rule.Equal)
}

// rule returns a rule. A nil target only counts.
func rule(t ipt.Target, matches ...ipt.Match) ipt.Rule { return ipt.Rule{Matches: matches, Target: t} }

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

// chance matches with the probability of a weight among what is left. The kernel keeps 31 bits of it.
func chance(weight, left int) ipt.Chance {
	return ipt.Chance(math.Round((1 << 31) * float64(weight) / float64(left)))
}

// doorFamily converts a family to that of package ipt.
func doorFamily(family cluster.Family) ipt.Family { return ipt.Family(family.String()) }
