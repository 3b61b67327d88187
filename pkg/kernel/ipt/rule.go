package ipt

import (
	"bytes"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// Rule is a rule of a chain. It can be written both ways: [Rule.Text] is for programs and people, and in the nft variant the
// kernel gets the same rule as bytes, which are those of iptables-nft.
type Rule struct {
	// Matches are in the order in which iptables-save prints them: addresses, interfaces, protocol, extensions. Every packet
	// matches nil.
	Matches []Match
	// Target decides about a packet; nil if the rule only counts.
	Target Target
	// listed is the text of a rule that was read.
	listed string
}

// Listed returns a rule of any form, as iptables-save prints it without the words -A CHAIN. Only programs can write it.
func Listed(text string) Rule { return Rule{listed: text} }

// Match is a condition of a rule.
type Match interface {
	// words returns the extension of iptables, if the match is one, the option and its value.
	words() (extension, option, value string)
	// encode adds the match, or its inversion.
	encode(e *encoder, not bool)
}

// Target is what happens to packets that match.
type Target interface {
	// words returns -j or -g, the name, and the options.
	words() (jump, name, options string)
	encode(e *encoder)
}

// longRule is more than the length of most rules' text.
const longRule = 256

// Text returns the rule as iptables-save prints it, without the words -A CHAIN.
func (r Rule) Text() string {
	if r.listed != "" {
		return r.listed
	}
	return string(r.appendText(make([]byte, 0, longRule)))
}

// Equal reports whether two rules have the same text, or, if one of them was listed, an equivalent one.
func (r Rule) Equal(o Rule) bool {
	var buffers [2][longRule]byte
	a, b := r.appendText(buffers[0][:0]), o.appendText(buffers[1][:0])
	return bytes.Equal(a, b) || (r.listed != "" || o.listed != "") && r.canonical() == o.canonical()
}

// appendText writes that text into an empty buffer.
func (r Rule) appendText(b []byte) []byte {
	if r.listed != "" {
		return append(b, r.listed...)
	}
	r.parts(func(part string) { b = append(append(b, part...), ' ') })
	return bytes.TrimSuffix(b, []byte(" "))
}

// args returns the rule's words, as a program takes them.
func (r Rule) args() (args []string, _ error) {
	if r.listed != "" {
		return Words(r.listed)
	}
	r.parts(func(part string) {
		if text, quoted := strings.CutPrefix(part, `"`); quoted {
			args = append(args, strings.TrimSuffix(text, `"`))
		} else {
			args = append(args, strings.Fields(part)...)
		}
	})
	return args, nil
}

// parts yields what the text of a rule that was not listed consists of: words, several of them, or one in quotation marks.
func (r Rule) parts(yield func(part string)) {
	for _, m := range r.Matches {
		if m == nil {
			continue
		}
		_, not := m.(inverted)
		extension, option, value := m.words()
		if extension != "" {
			yield("-m")
			yield(extension)
		}
		if not {
			yield("!")
		}
		yield(option)
		yield(value)
	}
	if r.Target == nil {
		return
	}
	jump, name, options := r.Target.words()
	yield(jump)
	yield(name)
	if options != "" {
		yield(options)
	}
}

// Not inverts a match. It returns nil for nil.
func Not(m Match) Match {
	if m == nil {
		return nil
	}
	return inverted{m}
}

type inverted struct{ Match }

func (i inverted) encode(e *encoder, not bool) { i.Match.encode(e, !not) }

// Source matches a range of source addresses, which must not be that of all addresses.
type Source netip.Prefix

// Destination matches a range of destinations, which must not be that of all addresses.
type Destination netip.Prefix

func (s Source) words() (extension, option, value string) { return "", "-s", netip.Prefix(s).String() }
func (d Destination) words() (extension, option, value string) {
	return "", "-d", netip.Prefix(d).String()
}

func (s Source) encode(e *encoder, not bool) {
	p := netip.Prefix(s)
	e.source = e.address(e.source, not, nf.Source, p.Addr(), nf.MaskOf(p))
}

func (d Destination) encode(e *encoder, not bool) {
	p := netip.Prefix(d)
	e.destination = e.address(e.destination, not, nf.Destination, p.Addr(), nf.MaskOf(p))
}

// DestinationBits matches destinations by some of their bits, which need not be the first ones.
type DestinationBits struct{ Addr, Mask netip.Addr }

func (d DestinationBits) words() (extension, option, value string) {
	return "", "-d", d.Addr.String() + "/" + d.Mask.String()
}

func (d DestinationBits) encode(e *encoder, not bool) {
	e.destination = e.address(e.destination, not, nf.Destination, d.Addr, d.Mask)
}

// In matches the input interface; a final + stands for any rest.
type In string

// Out matches the output interface, which packets do not have yet before they are routed; a final + stands for any rest.
type Out string

func (i In) words() (extension, option, value string)  { return "", "-i", string(i) }
func (o Out) words() (extension, option, value string) { return "", "-o", string(o) }

func (i In) encode(e *encoder, not bool)  { e.passes(unix.NFT_META_IIFNAME, not, string(i)) }
func (o Out) encode(e *encoder, not bool) { e.passes(unix.NFT_META_OIFNAME, not, string(o)) }

// Protocol matches a transport protocol.
type Protocol byte

// The protocols.
const (
	TCP  Protocol = unix.IPPROTO_TCP
	UDP  Protocol = unix.IPPROTO_UDP
	SCTP Protocol = unix.IPPROTO_SCTP
)

// String returns the name in iptables.
func (p Protocol) String() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	default:
		return "sctp"
	}
}

func (p Protocol) words() (extension, option, value string) { return "", "-p", p.String() }

func (p Protocol) encode(e *encoder, not bool) {
	e.ok = e.ok && !not
	e.protocol = byte(p)
}

// Ports matches the destination ports of a protocol, which the rule has to match before, from the first to the last.
type Ports struct {
	Protocol    Protocol
	First, Last uint16
}

func (p Ports) words() (extension, option, value string) {
	ports := strconv.Itoa(int(p.First))
	if p.Last != p.First {
		ports += ":" + strconv.Itoa(int(p.Last))
	}
	return p.Protocol.String(), "--dport", ports
}

func (p Ports) encode(e *encoder, not bool) {
	e.ok = e.ok && !not && p.Protocol != 0 && byte(p.Protocol) == e.protocol
	if p.Protocol == SCTP {
		e.matches = appendExtension(e.matches, "match", "sctp", 0, e.sctp(p.First, p.Last))
		return
	}
	b := nf.AppendPayload(e.matches, unix.NFT_REG_1, unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2)
	switch p.First {
	case p.Last:
		b = nf.AppendCompare(b, false, network16(p.First))
	case 0:
		b = nf.AppendCompareWith(b, unix.NFT_CMP_LTE, network16(p.Last))
	default:
		var open nf.Expr
		b, open = nf.BeginExpr(b, "range")
		b = nf.Numbers{{unix.NFTA_RANGE_SREG, unix.NFT_REG_1}, {unix.NFTA_RANGE_OP, unix.NFT_RANGE_EQ}}.AppendTo(b)
		b = nf.AppendData(b, unix.NFTA_RANGE_FROM_DATA, network16(p.First))
		b = nf.AppendData(b, unix.NFTA_RANGE_TO_DATA, network16(p.Last))
		open.End(b)
	}
	e.matches = b
}

// Mark matches bits of the packet's mark.
type Mark struct{ Value, Mask uint32 }

func (m Mark) words() (extension, option, value string) {
	return "mark", "--mark", hex(m.Value, m.Mask)
}

func (m Mark) encode(e *encoder, not bool) {
	b := nf.AppendMeta(e.matches, unix.NFT_REG_1, unix.NFT_META_MARK)
	b = nf.AppendBitwise(b, native32(m.Mask), native32(0))
	e.matches = nf.AppendCompare(b, not, native32(m.Value))
}

// hex formats 0xVALUE/0xMASK.
func hex(value, mask uint32) string {
	return "0x" + strconv.FormatUint(uint64(value), 16) + "/0x" + strconv.FormatUint(uint64(mask), 16)
}

// Verdict ends the way of a packet, or the chain.
type Verdict string

// The verdicts.
const (
	Accept Verdict = "ACCEPT"
	Drop   Verdict = "DROP"
	Return Verdict = "RETURN"
)

func (v Verdict) words() (jump, name, options string) { return "-j", string(v), "" }

func (v Verdict) encode(e *encoder) {
	verdict := map[Verdict]nf.Verdict{Accept: nf.Accept, Drop: nf.Drop, Return: nf.Return}[v]
	e.out = nf.AppendImmediate(e.out, verdict, "")
}

// Jump continues in a chain, and returns if nothing there decides.
type Jump string

// Goto continues in a chain, and does not return.
type Goto string

func (j Jump) words() (jump, name, options string) { return "-j", string(j), "" }
func (g Goto) words() (jump, name, options string) { return "-g", string(g), "" }

func (j Jump) encode(e *encoder) { e.goes(nf.Jump, string(j)) }
func (g Goto) encode(e *encoder) { e.goes(nf.Goto, string(g)) }

// maxChain is XT_EXTENSION_MAXNAMELEN without the final NUL.
const maxChain = 28

// isUserChain reports whether a name is certainly that of a user chain: with a hyphen, which no built-in chain or
// target has.
func isUserChain(name string) bool {
	return name != "" && len(name) <= maxChain && strings.Contains(name, "-") && name[0] >= 'A' && name[0] <= 'Z' &&
		!strings.ContainsFunc(name, func(r rune) bool {
			return (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_'
		})
}
