package ipt

import (
	"bytes"
	"math"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	nftables "github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

const (
	// maxComment is XT_MAX_COMMENT_LEN without the final NUL. iptables cuts longer comments.
	maxComment = 255
	// maxChainName is XT_EXTENSION_MAXNAMELEN without the final NUL.
	maxChainName = 28
)

// encoder encodes rules as iptables-nft does, byte by byte: addresses, interfaces, protocols, ports of TCP and UDP and marks
// as expressions of nf_tables, everything else as matches and targets of x_tables (see extensions). It knows the forms of
// rules that a service proxy writes, and no others.
type encoder struct {
	family Family
	// newer selects the encoding of iptables-nft 1.8.10 and later, rather than that of 1.8.9. They mean the same to the kernel:
	// see header.
	newer bool
	// words are those not read yet, of line; blob is what newBlob returns. Both are reused.
	words, line []string
	blob        blob

	// What the words read so far match. protocol is 0 for all.
	interfaces, source, destination, matches []byte
	protocol                                 byte
	ok                                       bool
}

// rule appends the expressions of a rule, written like a line of iptables-restore without the words -A CHAIN. It returns
// false if it does not know the form of the rule. protocol is what the kernel checks extensions against.
func (e *encoder) rule(b []byte, text string) (_ []byte, protocol byte, ok bool) {
	e.interfaces, e.source, e.destination, e.matches = e.interfaces[:0], e.source[:0], e.destination[:0], e.matches[:0]
	e.protocol = 0
	e.line, e.ok = plainWords(e.line[:0], text)
	if e.words = e.line; !e.ok {
		return b, 0, false
	}
	for e.ok && len(e.words) > 0 && e.words[0] != "-j" && e.words[0] != "-g" {
		not := e.skip("!")
		switch e.word() {
		case "-s":
			e.ok = e.ok && len(e.source) == 0
			e.source = e.address(e.source, not, 0)
		case "-d":
			e.ok = e.ok && len(e.destination) == 0
			e.destination = e.address(e.destination, not, 1)
		case "-i":
			e.passes(unix.NFT_META_IIFNAME, not)
		case "-o":
			e.passes(unix.NFT_META_OIFNAME, not)
		case "-p":
			e.ok = e.ok && !not && e.protocol == 0
			e.protocol = protocolNumber(e.word())
			e.ok = e.ok && e.protocol != 0
		case "-m":
			e.ok = e.ok && !not
			e.match(e.word())
		default:
			e.ok = false
		}
	}
	b = append(e.header(b), e.matches...)
	b = appendCounter(b)
	b = e.target(b)
	return b, e.protocol, e.ok
}

// header appends the matches of the interface, the protocol and the addresses.
func (e *encoder) header(b []byte) []byte {
	if e.newer {
		b = append(append(b, e.source...), e.destination...)
		return e.appendProtocol(append(b, e.interfaces...))
	}
	b = e.appendProtocol(append(b, e.interfaces...))
	return append(append(b, e.source...), e.destination...)
}

// appendProtocol appends the match of the protocol, if there is one. The newer encoding reads it from the header of IPv4;
// in IPv6 extension headers can precede it there.
func (e *encoder) appendProtocol(b []byte) []byte {
	if e.protocol == 0 {
		return b
	}
	if e.newer && e.family == IPv4 {
		b = nftables.AppendPayload(b, unix.NFT_REG_1, unix.NFT_PAYLOAD_NETWORK_HEADER, 9, 1)
	} else {
		b = nftables.AppendMeta(b, unix.NFT_REG_1, unix.NFT_META_L4PROTO)
	}
	return nftables.AppendCompare(b, false, []byte{e.protocol})
}

// plainWords splits a line at spaces; "..." is one word. It returns false for a line with a backslash.
func plainWords(words []string, line string) ([]string, bool) {
	for line != "" {
		var word, rest string
		var found bool
		if line[0] == '"' {
			word, rest, found = strings.Cut(line[1:], `"`)
			found = found && (rest == "" || rest[0] == ' ')
			rest = strings.TrimPrefix(rest, " ")
		} else {
			word, rest, _ = strings.Cut(line, " ")
			found = word != "" && !strings.Contains(word, `"`)
		}
		if !found || strings.Contains(word, `\`) {
			return words, false
		}
		words, line = append(words, word), rest
	}
	return words, true
}

// word takes the next word.
func (e *encoder) word() string {
	if len(e.words) == 0 {
		e.ok = false
		return ""
	}
	word := e.words[0]
	e.words = e.words[1:]
	return word
}

// skip takes the next word if it is the given one.
func (e *encoder) skip(word string) bool {
	if len(e.words) == 0 || e.words[0] != word {
		return false
	}
	e.words = e.words[1:]
	return true
}

// expect takes words that have to be the given ones.
func (e *encoder) expect(words ...string) {
	for _, word := range words {
		e.ok = e.word() == word && e.ok
	}
}

// number parses a decimal number; iptables reads one that begins with 0 as octal.
func (e *encoder) number(word string, bits int) uint64 {
	n, err := strconv.ParseUint(word, 10, bits)
	e.ok = e.ok && err == nil && (word == "0" || word[0] != '0')
	return n
}

// parseAddr parses an address of the family.
func (e *encoder) parseAddr(word string) netip.Addr {
	addr, err := netip.ParseAddr(word)
	e.ok = e.ok && err == nil && addr.Is4() == (e.family == IPv4) && addr.Zone() == ""
	return addr
}

// address matches the source (0) or the destination (1): ADDRESS, ADDRESS/BITS or ADDRESS/MASK.
func (e *encoder) address(b []byte, not bool, which int) []byte {
	word, rest, masked := strings.Cut(e.word(), "/")
	addr := e.parseAddr(word)
	mask, ok := e.mask(rest, masked)
	if e.ok = e.ok && ok; !e.ok {
		return b
	}
	var buffers [2][16]byte
	size := addr.BitLen() / 8
	value, none := append(buffers[0][:0], addr.AsSlice()...), buffers[1][:size]
	for i := range value {
		value[i] &= mask[i]
	}
	whole := 0 // bytes of the mask before the first that is not 0xff
	for whole < size && mask[whole] == 0xff {
		whole++
	}
	bytewise := bytes.Equal(mask[whole:size], none[whole:])
	if e.ok = whole > 0 || !bytewise; !e.ok { // all addresses: iptables leaves out such a match
		return b
	}
	offset := 12 + 4*which
	if e.family == IPv6 {
		offset = 8 + 16*which
	}
	const header = unix.NFT_PAYLOAD_NETWORK_HEADER
	if bytewise {
		return nftables.AppendCompare(nftables.AppendPayload(b, unix.NFT_REG_1, header, offset, whole), not, value[:whole])
	}
	b = nftables.AppendPayload(b, unix.NFT_REG_1, header, offset, size)
	return nftables.AppendCompare(nftables.AppendBitwise(b, mask[:size], none), not, value)
}

// mask parses BITS or a mask; without either it is that of one address.
func (e *encoder) mask(word string, given bool) (mask [16]byte, ok bool) {
	if strings.ContainsAny(word, ".:") {
		copy(mask[:], e.parseAddr(word).AsSlice())
		return mask, e.ok
	}
	size := 4
	if e.family == IPv6 {
		size = 16
	}
	bits := 8 * size
	if given {
		bits = int(e.number(word, 8))
	}
	for i := range size {
		mask[i] = byte(0xff << max(0, min(8, 8*(i+1)-bits)))
	}
	return mask, bits <= 8*size
}

// passes matches the input or output interface; a final + stands for any rest.
func (e *encoder) passes(direction uint32, not bool) {
	name := e.word()
	stem, wild := strings.CutSuffix(name, "+")
	e.ok = e.ok && stem != "" && len(name) < unix.IFNAMSIZ && !strings.ContainsAny(name, " /!") && len(e.interfaces) == 0
	var buffer [unix.IFNAMSIZ]byte
	value := append(buffer[:0], stem...)
	if !wild {
		value = append(value, 0)
	}
	e.interfaces = nftables.AppendCompare(nftables.AppendMeta(e.interfaces, unix.NFT_REG_1, direction), not, value)
}

func protocolNumber(name string) byte {
	switch name {
	case "tcp":
		return unix.IPPROTO_TCP
	case "udp":
		return unix.IPPROTO_UDP
	case "sctp":
		return unix.IPPROTO_SCTP
	}
	return 0
}

// match matches with an extension. Each has its options in the order in which iptables-save prints them.
func (e *encoder) match(module string) {
	switch module {
	case "tcp", "udp", "sctp":
		e.ok = e.ok && protocolNumber(module) == e.protocol
		e.expect("--dport")
		e.ports(e.word())
	case "mark":
		not := e.skip("!")
		e.expect("--mark")
		value, mask := e.masked()
		b := nftables.AppendMeta(e.matches, unix.NFT_REG_1, unix.NFT_META_MARK)
		if mask != math.MaxUint32 {
			b = nftables.AppendBitwise(b, native32(mask), native32(0))
		}
		e.matches = nftables.AppendCompare(b, not, native32(value))
	default:
		e.extension(module)
	}
}

// masked takes 0xVALUE/0xMASK.
func (e *encoder) masked() (value, mask uint32) {
	v, m, _ := strings.Cut(e.word(), "/")
	return e.hex(v), e.hex(m)
}

func (e *encoder) hex(word string) uint32 {
	digits, is := strings.CutPrefix(word, "0x")
	n, err := strconv.ParseUint(digits, 16, 32)
	e.ok = e.ok && is && err == nil
	return uint32(n)
}

// ports matches destination ports: FIRST or FIRST:LAST.
func (e *encoder) ports(word string) {
	first, last, isRange := strings.Cut(word, ":")
	from := uint16(e.number(first, 16))
	to := from
	if isRange {
		to = uint16(e.number(last, 16))
	}
	if e.ok = e.ok && from <= to; !e.ok {
		return
	}
	if e.protocol == unix.IPPROTO_SCTP {
		e.matches = appendExtension(e.matches, "match", "sctp", 0, e.sctp(from, to))
		return
	}
	b := nftables.AppendPayload(e.matches, unix.NFT_REG_1, unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2)
	if from == to {
		e.matches = nftables.AppendCompare(b, false, network16(from))
		return
	}
	if from == 0 {
		e.matches = nftables.AppendCompareWith(b, unix.NFT_CMP_LTE, network16(to))
		return
	}
	b, open := nftables.BeginExpr(b, "range")
	b = nftables.Numbers{{unix.NFTA_RANGE_SREG, unix.NFT_REG_1}, {unix.NFTA_RANGE_OP, unix.NFT_RANGE_EQ}}.AppendTo(b)
	b = nftables.AppendData(b, unix.NFTA_RANGE_FROM_DATA, network16(from))
	b = nftables.AppendData(b, unix.NFTA_RANGE_TO_DATA, network16(to))
	open.End(b)
	e.matches = b
}

// appendCounter appends a counter that starts at 0.
func appendCounter(b []byte) []byte {
	b, open := nftables.BeginExpr(b, "counter")
	var zero [8]byte
	b = netlink.AppendBytes(b, unix.NFTA_COUNTER_BYTES, zero[:])
	b = netlink.AppendBytes(b, unix.NFTA_COUNTER_PACKETS, zero[:])
	open.End(b)
	return b
}

// target appends the target, if there is one, which ends the rule.
func (e *encoder) target(b []byte) []byte {
	if !e.ok || len(e.words) == 0 {
		return b
	}
	verdict := nftables.Jump
	if e.word() == "-g" {
		verdict = nftables.Goto
	}
	name := e.word()
	switch name {
	case "ACCEPT":
		b = nftables.AppendImmediate(b, nftables.Accept, "")
	case "DROP":
		b = nftables.AppendImmediate(b, nftables.Drop, "")
	case "RETURN":
		b = nftables.AppendImmediate(b, nftables.Return, "")
	default:
		if info, revision, is := e.targetInfo(name); is {
			b = appendExtension(b, "target", name, revision, info)
			break
		}
		e.ok = e.ok && isUserChain(name)
		e.ok = e.ok && len(e.words) == 0
		return nftables.AppendImmediate(b, verdict, name)
	}
	e.ok = e.ok && verdict == nftables.Jump && len(e.words) == 0
	return b
}

// isUserChain reports whether a name is certainly that of a user chain: with a hyphen, which no built-in chain or
// target has.
func isUserChain(name string) bool {
	return len(name) <= maxChainName && strings.Contains(name, "-") && name[0] >= 'A' && name[0] <= 'Z' &&
		!strings.ContainsFunc(name, func(r rune) bool {
			return (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_'
		})
}
