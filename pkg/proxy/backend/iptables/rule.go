package iptables

import (
	"bytes"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// rule is one rule: matches and a target.
type rule struct {
	matches []match
	target  target
}

// match is an option of iptables that packets have to match. All packets match the zero value.
type match struct {
	// module is the extension with the option; empty for an option of iptables itself.
	module string
	not    bool
	option string
	// value may be several words.
	value string
}

// target decides about a packet; empty if the rule only counts.
type target struct {
	// name is a chain or a built-in target.
	name, options string
	// noReturn means that packets do not return from the chain to this one (-g).
	noReturn bool
}

// line is a rule as iptables-save prints it without the words -A CHAIN.
type line struct {
	text string
	// owner is the port of a Service that the rule is for; zero if it is for all.
	owner portKey
}

// line renders the rule, which is for all.
func (r rule) line() line { return line{text: ruleText(r.target, r.matches)} }

// ruleText renders a rule. It is the only place where rules become text.
func ruleText(t target, matches []match) string {
	text := make([]byte, 0, 256)
	for _, m := range matches {
		if m.option == "" {
			continue
		}
		if m.module != "" {
			text = append(append(append(text, "-m "...), m.module...), ' ')
		}
		if m.not {
			text = append(text, "! "...)
		}
		text = append(append(append(append(text, m.option...), ' '), m.value...), ' ')
	}
	if t.name != "" {
		jump := "-j "
		if t.noReturn {
			jump = "-g "
		}
		text = append(append(append(append(text, jump...), t.name...), ' '), t.options...)
	}
	return string(bytes.TrimSuffix(text, []byte(" ")))
}

// lines renders rules without an owner.
func lines(rules ...rule) []line {
	var all []line
	for _, r := range rules {
		all = append(all, r.line())
	}
	return all
}

// not inverts a match.
func not(m match) match {
	m.not = true
	return m
}

// source and destination match ranges of addresses. The range of all addresses needs no match.
func source(p netip.Prefix) match      { return prefix("-s", p) }
func destination(p netip.Prefix) match { return prefix("-d", p) }

func prefix(option string, p netip.Prefix) match {
	if p.Bits() == 0 {
		return match{}
	}
	return match{"", false, option, p.Masked().String()}
}

// host returns the range of one address.
func host(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, addr.BitLen()) }

// masked matches destinations by some of their bits, which need not be the first ones.
func masked(addr, mask netip.Addr) match {
	return match{"", false, "-d", addr.String() + "/" + mask.String()}
}

// arrivesOn matches the input interface.
func arrivesOn(name string) match { return match{"", false, "-i", name} }

// leavesOn matches the output interface, which packets do not have yet before they are routed.
func leavesOn(name string) match { return match{"", false, "-o", name} }

func protocol(p cluster.Protocol) match { return match{"", false, "-p", protocolName(p)} }

// dport matches a protocol's destination ports from the first to the last.
func dport(p cluster.Protocol, first, last uint16) match {
	ports := strconv.Itoa(int(first))
	if last != first {
		ports += ":" + strconv.Itoa(int(last))
	}
	return match{protocolName(p), false, "--dport", ports}
}

// maxComment is enough for the longest name and its suffix; the kernel's limit is 255 bytes.
const maxComment = 240

// comment matches every packet. The API server validates names; the result is a single quoted word for any text.
func comment(text string) match {
	safe := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(" /:._-", r) {
			return r
		}
		return '_'
	}, text)
	return match{"comment", false, "--comment", `"` + safe[:min(len(safe), maxComment)] + `"`}
}

func ctstate(states string) match { return match{"conntrack", false, "--ctstate", states} }
func marked(mark string) match    { return match{"mark", false, "--mark", mark + "/" + mark} }

// isLocal matches packets whose source (--src-type) or destination (--dst-type) is an address of this machine.
func isLocal(option string) match { return match{"addrtype", false, option, "LOCAL"} }

// chance matches with a probability of one in n. The kernel keeps 31 bits of it.
func chance(n int) match {
	const one = 1 << 31
	probability := strconv.FormatFloat(math.Round(one/float64(n))/one, 'f', 11, 64)
	return match{"statistic", false, "--mode", "random --probability " + probability}
}

// recent matches clients in a list that have connected within a time, and updates the list. If the time is 0 it matches
// every client, and adds it to the list.
func recent(list, mask string, within time.Duration) match {
	m := match{"recent", false, "--set", "--name " + list + " --mask " + mask + " --rsource"}
	if within > 0 {
		m.option, m.value = "--update", fmt.Sprintf("--seconds %d --reap ", within/time.Second)+m.value
	}
	return m
}

// jump continues in a chain, or in a target without options such as ACCEPT, and returns if nothing there decides.
func jump(name string) target { return target{name: name} }

// goTo continues in a chain and does not return.
func goTo(chain string) target { return target{name: chain, noReturn: true} }

// dnat sends a connection to an endpoint.
func dnat(to netip.AddrPort) target {
	return target{name: "DNAT", options: "--to-destination " + to.String()}
}

// setMark sets the bits of a mask in the packet mark to a value.
func setMark(value, mask string) target {
	return target{name: "MARK", options: "--set-xmark " + value + "/" + mask}
}

// canonical is equal for equivalent rules, in whatever order iptables prints their parts.
func canonical(text string) string {
	words, err := ipt.Words(text)
	if err != nil {
		return text
	}
	var parts []string
	open := false // whether the last word is an option or its !
	for i, word := range words {
		last := ""
		if i > 0 {
			last = words[i-1]
		}
		option := word == "!" || strings.HasPrefix(word, "-") && last != "--comment"
		switch {
		case option && (!open || last != "!"), len(parts) == 0:
			parts = append(parts, word)
		case last == "--probability": // versions of iptables print different numbers of digits
			if p, err := strconv.ParseFloat(word, 64); err == nil {
				word = strconv.FormatFloat(p, 'f', 7, 64)
			}
			fallthrough
		default:
			parts[len(parts)-1] += " " + word
		}
		open = option
	}
	slices.Sort(parts)
	return strings.Join(parts, "\x00")
}
