package iptables

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// line is one rule, as iptables-save prints it but for the words -A CHAIN. Owner is the port of a Service that it is
// there for, empty if it is there for all.
type line struct {
	text  string
	owner string
}

// maxComment is what the longest name and what we say of it fit in; the kernel takes 255 bytes.
const maxComment = 240

// comment renders a comment. Names are checked by the API server; whatever else comes here cannot break out of it.
func comment(text string) string {
	safe := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(" /:._-", r) {
			return r
		}
		return '_'
	}, text)
	return ` -m comment --comment "` + safe[:min(len(safe), maxComment)] + `"`
}

// dport renders the match of a protocol's port, or of all ports from the first to the last.
func dport(p cluster.Protocol, ports ...uint16) string {
	texts := make([]string, len(ports))
	for i, port := range ports {
		texts[i] = strconv.Itoa(int(port))
	}
	return " -m " + protocolName(p) + " --dport " + strings.Join(texts, ":")
}

// host renders an address as a prefix of its full length.
func host(addr netip.Addr) string { return netip.PrefixFrom(addr, addr.BitLen()).String() }

// chance renders the match that is true with a probability of one in n. The kernel knows 31 bits of it.
func chance(n int) string {
	const one = 1 << 31
	return fmt.Sprintf(" -m statistic --mode random --probability %.11f", math.Round(one/float64(n))/one)
}

// writer renders the rules of one family.
type writer struct {
	family       cluster.Family
	node         *plan.Node
	mark         string
	capabilities capabilities

	fullMask, loopback, reject string
	cidr                       netip.Prefix
}

// recent renders a match of the list of an endpoint's clients: one that is on it and connected within the time (update,
// which counts this connection too), or anyone, who is put on it (set).
func (w *writer) recent(set bool, list string, within time.Duration) string {
	what := "--set"
	if !set {
		what = fmt.Sprintf("--update --seconds %d --reap", within/time.Second)
	}
	return " -m recent " + what + " --name " + list + " --mask " + w.fullMask + " --rsource"
}

func newWriter(family cluster.Family, node *plan.Node, opts Options, can capabilities) *writer {
	w := &writer{family: family, node: node, mark: markOf(opts), capabilities: can,
		fullMask: "255.255.255.255", loopback: "127.0.0.0/8", reject: "icmp-port-unreachable"}
	if family == cluster.IPv6 {
		w.fullMask, w.loopback, w.reject = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "::1/128", "icmp6-port-unreachable"
	}
	w.cidr, _ = node.LocalTraffic.CIDR(family)
	return w
}

// markOf is how iptables writes the mark.
func markOf(opts Options) string { return fmt.Sprintf("0x%x", opts.Mark) }

// arrivesOn is iptables' way to write the interface of local traffic; empty where it is told otherwise.
func (w *writer) arrivesOn() string {
	name := strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' || strings.ContainsRune(`"'\!/`, r) {
			return '_' // no interface is called so, and no rule is broken by it
		}
		return r
	}, w.node.LocalTraffic.Interface)
	if stem, wild := strings.CutSuffix(name, "*"); wild {
		name = stem + "+"
	}
	return name
}

// fromLocal renders the head of a rule for local traffic to one destination (or to any, an invalid one), or for
// everything else. No packet is meant where local traffic cannot be told, or is everything.
func (w *writer) fromLocal(local bool, to netip.Addr) (head string, ok bool) {
	not, destination := "", ""
	if !local {
		not = "! "
	}
	if to.IsValid() {
		destination = "-d " + host(to) + " "
	}
	switch name := w.arrivesOn(); {
	case name != "":
		return destination + not + "-i " + name + " ", true
	case !w.cidr.IsValid() || w.cidr.Bits() == 0 && !local:
		return "", false
	case w.cidr.Bits() == 0:
		return destination, true
	default:
		return not + source(w.cidr) + destination, true
	}
}

// source renders the match of a range of sources; all there are need none.
func source(from netip.Prefix) string {
	if from.Bits() == 0 {
		return ""
	}
	return "-s " + from.Masked().String() + " "
}

// masquerade is the target that gives connections the node's address.
func (w *writer) masquerade() string {
	if w.capabilities.randomFully {
		return "-j MASQUERADE --random-fully"
	}
	return "-j MASQUERADE"
}
