package ipt

import (
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// lineReader reads lines of iptables-save as values, so that tests can have rules as text. It knows the forms that a Rule has.
type lineReader struct {
	words []string
	ok    bool
}

// ruleOf returns the value of a rule's text. It knows no rule with an option or a module twice: iptables refuses most of them.
func ruleOf(text string) (r Rule, ok bool) {
	words, err := Words(text)
	p := &lineReader{words, err == nil}
	protocol, seen := Protocol(0), map[string]bool{}
	for p.ok && len(p.words) > 0 && p.words[0] != "-j" && p.words[0] != "-g" {
		var m Match
		not := p.skip("!")
		option := p.next()
		if option == "-m" {
			option += " " + p.peek()
		}
		p.ok = p.ok && !seen[option]
		seen[option] = true
		switch option, _, _ := strings.Cut(option, " "); option {
		case "-s":
			m = Source(p.prefix())
		case "-d":
			if addr, mask, masked := strings.Cut(p.peek(), "/"); masked && strings.ContainsAny(mask, ".:") {
				p.next()
				m = DestinationBits{p.addr(addr), p.addr(mask)}
				break
			}
			m = Destination(p.prefix())
		case "-i":
			m = In(p.next())
		case "-o":
			m = Out(p.next())
		case "-p":
			protocol = map[string]Protocol{"tcp": TCP, "udp": UDP, "sctp": SCTP}[p.next()]
			m, p.ok = protocol, p.ok && protocol != 0
		case "-m":
			module := p.next()
			not = p.skip("!") || not
			m = p.extension(module, protocol)
		default:
			p.ok = false
		}
		if not && p.ok {
			m = Not(m)
		}
		r.Matches = append(r.Matches, m)
	}
	if p.ok && len(p.words) > 0 {
		r.Target = p.target()
	}
	return r, p.ok && len(p.words) == 0
}

// rule returns the value of a rule's text, which must be that of the value.
func rule(t testing.TB, text string) Rule {
	t.Helper()
	r, ok := ruleOf(text)
	if !ok || Canonical(r.Text()) != Canonical(text) || strings.ReplaceAll(r.Text(), `"`, "") != strings.ReplaceAll(text, `"`, "") {
		t.Errorf("%q is %q as a value (%t)", text, r.Text(), ok)
	}
	words, _ := Words(text)
	if args, err := r.args(); err != nil || !slices.Equal(args, words) {
		t.Errorf("%q has the words %q, %v", text, args, err)
	}
	return r
}

func (p *lineReader) peek() string {
	if len(p.words) == 0 {
		p.ok = false
		return ""
	}
	return p.words[0]
}

func (p *lineReader) next() string {
	word := p.peek()
	if p.ok {
		p.words = p.words[1:]
	}
	return word
}

func (p *lineReader) skip(words ...string) bool {
	for _, word := range words {
		if len(p.words) == 0 || p.words[0] != word {
			return false
		}
		p.words = p.words[1:]
	}
	return true
}

func (p *lineReader) expect(words ...string) { p.ok = p.skip(words...) && p.ok }

func (p *lineReader) addr(word string) netip.Addr {
	addr, err := netip.ParseAddr(word)
	p.ok = p.ok && err == nil && addr.Zone() == ""
	return addr
}

func (p *lineReader) prefix() netip.Prefix {
	prefix, err := netip.ParsePrefix(p.next())
	p.ok = p.ok && err == nil
	return prefix.Masked()
}

func (p *lineReader) number(word string, base, bits int) uint64 {
	n, err := strconv.ParseUint(word, base, bits)
	p.ok = p.ok && err == nil
	return n
}

// masked takes 0xVALUE/0xMASK.
func (p *lineReader) masked() (value, mask uint32) {
	v, m, _ := strings.Cut(p.next(), "/")
	return uint32(p.number(strings.TrimPrefix(v, "0x"), 16, 32)), uint32(p.number(strings.TrimPrefix(m, "0x"), 16, 32))
}

func (p *lineReader) extension(module string, protocol Protocol) Match {
	option := p.next()
	switch module + " " + option {
	case "tcp --dport", "udp --dport", "sctp --dport":
		p.ok = p.ok && protocol.String() == module
		first, last, isRange := strings.Cut(p.next(), ":")
		if !isRange {
			last = first
		}
		return Ports{protocol, uint16(p.number(first, 10, 16)), uint16(p.number(last, 10, 16))}
	case "mark --mark":
		value, mask := p.masked()
		return Mark{value, mask}
	case "comment --comment":
		text := p.next()
		p.ok = p.ok && !strings.ContainsAny(text, `"\`)
		return Comment(text)
	case "statistic --mode":
		if p.skip("nth") {
			p.expect("--every")
			n := Every(p.number(p.next(), 10, 32))
			p.expect("--packet", "0")
			return n
		}
		p.expect("random", "--probability")
		chance, err := strconv.ParseFloat(p.next(), 64)
		p.ok = p.ok && err == nil && chance >= 0 && chance <= 1
		return Chance(math.Round(chance * (1 << 31)))
	case "recent --set", "recent --update":
		r := Recent{}
		if option == "--update" {
			p.expect("--seconds")
			r.Within = time.Duration(p.number(p.next(), 10, 32)) * time.Second
			p.expect("--reap")
		}
		p.expect("--name")
		r.List = p.next()
		p.expect("--mask")
		r.Whole = p.addr(p.next())
		p.expect("--rsource")
		return r
	case "hashlimit --hashlimit-above":
		r := RateAbove{}
		p.next() // which differs a little from the burst
		p.expect("--hashlimit-burst")
		r.PerSecond = uint32(p.number(p.next(), 10, 32))
		bySource := p.skip("--hashlimit-mode", "srcip")
		p.expect("--hashlimit-name")
		if r.List = p.next(); bySource {
			p.expect("--hashlimit-htable-max")
			r.Clients = uint32(p.number(p.next(), 10, 32))
		}
		return r
	case "connlimit --connlimit-above":
		o := OpenAbove{Open: uint32(p.number(p.next(), 10, 32))}
		p.expect("--connlimit-mask")
		o.Bits = int(p.number(p.next(), 10, 8))
		p.expect("--connlimit-saddr")
		return o
	case "addrtype --src-type", "addrtype --dst-type":
		p.expect("LOCAL")
		return Local(option)
	case "conntrack --ctstate":
		states := States(0)
		for name := range strings.SplitSeq(p.next(), ",") {
			bit := map[string]States{"INVALID": Invalid, "NEW": New, "RELATED": Related, "ESTABLISHED": Established, "DNAT": Translated}[name]
			states, p.ok = states|bit, p.ok && bit != 0
		}
		return states
	case "conntrack --ctorigdst":
		return Original(p.prefix())
	}
	p.ok = false
	return nil
}

func (p *lineReader) target() Target {
	jump, name := p.next(), p.next()
	if jump == "-g" {
		return Goto(name)
	}
	switch name {
	case "ACCEPT", "DROP", "RETURN":
		return Verdict(name)
	case "MARK":
		p.expect("--set-xmark")
		value, mask := p.masked()
		return SetMark{value, mask}
	case "DNAT":
		p.expect("--to-destination")
		to, err := netip.ParseAddrPort(p.next())
		p.ok = p.ok && err == nil && to.Addr().Zone() == ""
		return DNAT(to)
	case "MASQUERADE":
		p.expect("--random-fully")
		return Masquerade{}
	case "REJECT":
		p.expect("--reject-with")
		return Reject(p.next())
	}
	return Jump(name)
}
