package ipt

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Numbers of linux/netfilter/nfnetlink.h and nf_tables.h that x/sys lacks or names at length.
const (
	nftGetRule  = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETRULE
	nftGetChain = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETCHAIN

	ruleTable, ruleChain      = 1, 2    // NFTA_RULE_TABLE, NFTA_RULE_CHAIN
	ruleExprs, ruleUser       = 4, 7    // NFTA_RULE_EXPRESSIONS, NFTA_RULE_USERDATA
	chainTable, chainName     = 1, 3    // NFTA_CHAIN_TABLE, NFTA_CHAIN_NAME
	exprName, exprData        = 1, 2    // NFTA_EXPR_NAME, NFTA_EXPR_DATA
	counterPackets            = 2       // NFTA_COUNTER_PACKETS
	attrTypeMask              = 0x3fff  // without NLA_F_NESTED and NLA_F_NET_BYTEORDER
	netlinkHeader, nfnlHeader = 16, 4   // sizes of nlmsghdr and nfgenmsg
	netlinkBuffer             = 1 << 16 // the kernel fills up to 32 KiB at a time
)

// ErrBusy tells that others changed the rules while they were read. Try again.
var ErrBusy = errors.New("the rules changed while they were read")

// digestSeed makes digests unpredictable. They are compared within one process only.
var digestSeed = maphash.MakeSeed()

// nftSentinel asks nf_tables over netlink, and hears what it tells.
type nftSentinel struct {
	*notices
	socket int
	family byte
	buffer []byte
	seq    uint32
}

func openNFTSentinel(family Family) (sentinel, error) {
	s, err := openRequests(family)
	if err != nil {
		return nil, err
	}
	if s.notices, err = openNotices(s.family); err != nil {
		return nil, errors.Join(fmt.Errorf("listen to nf_tables: %w", err), unix.Close(s.socket))
	}
	return s, nil
}

// openRequests makes a sentinel that only asks; its socket is the caller's to close.
func openRequests(family Family) (*nftSentinel, error) {
	s := &nftSentinel{family: unix.NFPROTO_IPV4, buffer: make([]byte, netlinkBuffer)}
	if family == IPv6 {
		s.family = unix.NFPROTO_IPV6
	}
	var err error
	s.socket, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err == nil {
		// No answer takes long: the kernel reads without the lock that writers hold.
		wait := unix.NsecToTimeval(int64(10 * time.Second))
		err = unix.SetsockoptTimeval(s.socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait)
	}
	if err != nil {
		return nil, fmt.Errorf("open a socket to nf_tables: %w", err)
	}
	return s, nil
}

func (s *nftSentinel) close() error { return errors.Join(s.notices.close(), unix.Close(s.socket)) }

// changes are those that the kernel told of.
func (s *nftSentinel) changes([]string) (*Changes, error) { return s.heard() }

// digests sums up what nf_tables says about each rule, chain by chain: the dump of a whole table begins at its first rule
// again for every 32 KiB, which at 10,000 Services takes half as long again (0.45 s of a processor, not 0.29 s).
func (s *nftSentinel) digests(ctx context.Context, table string, chains []string) (map[string]uint64, error) {
	out := map[string]uint64{}
	if err := s.chains(table, chains, out); err != nil {
		return nil, err
	}
	request := attr(ruleTable, append([]byte(table), 0))
	for chain := range out {
		of := append(slices.Clip(request), attr(ruleChain, append([]byte(chain), 0))...)
		if err := errors.Join(ctx.Err(), s.sumUp(table, of, out)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// chains finds out which chains there are, of all or of those given.
func (s *nftSentinel) chains(table string, given []string, out map[string]uint64) error {
	found := func(attrs []byte) {
		var in, name string
		eachAttr(attrs, func(kind uint16, value []byte) {
			switch kind {
			case chainTable:
				in = text(value)
			case chainName:
				name = text(value)
			}
		})
		if in == table {
			out[name] = 0
		}
	}
	if len(given) == 0 {
		return s.ask(nftGetChain, unix.NLM_F_DUMP, nil, found)
	}
	for _, name := range given {
		one := append(attr(chainTable, append([]byte(table), 0)), attr(chainName, append([]byte(name), 0))...)
		if err := s.ask(nftGetChain, 0, one, found); err != nil {
			return err
		}
	}
	return nil
}

// ruleDigests sums up a chain's rules, each by itself.
func (s *nftSentinel) ruleDigests(table, chain string) (digests []uint64, err error) {
	err = s.eachRule(table, rulesOf(table, chain), func(_ string, digest uint64) { digests = append(digests, digest) })
	return digests, err
}

// rulesOf asks for the rules of one chain.
func rulesOf(table, chain string) []byte {
	return append(attr(ruleTable, append([]byte(table), 0)), attr(ruleChain, append([]byte(chain), 0))...)
}

// nftPackets reads the counters of a chain's rules by a socket of its own. The kernel walks no other chain for it.
func nftPackets(family Family, table, chain string) (packets []uint64, err error) {
	s, err := openRequests(family)
	if err != nil {
		return nil, err
	}
	defer unix.Close(s.socket)
	err = s.ask(nftGetRule, unix.NLM_F_DUMP, rulesOf(table, chain), func(attrs []byte) {
		packets = append(packets, countedBy(attrOf(attrs, ruleExprs)))
	})
	return packets, err
}

// countedBy is what the counter among a rule's expressions says. A rule without one, which iptables never makes, counts 0.
func countedBy(list []byte) (packets uint64) {
	eachAttr(list, func(_ uint16, expression []byte) {
		said := attrOf(attrOf(expression, exprData), counterPackets)
		if isCounter(expression) && len(said) == 8 {
			packets = binary.BigEndian.Uint64(said)
		}
	})
	return packets
}

func isCounter(expression []byte) bool { return text(attrOf(expression, exprName)) == "counter" }

// sumUp adds the rules that a request finds to their chains' digests.
func (s *nftSentinel) sumUp(table string, request []byte, out map[string]uint64) error {
	return s.eachRule(table, request, func(chain string, digest uint64) { out[chain] = chained(out[chain], digest) })
}

// eachRule visits the rules of a table that a request finds.
func (s *nftSentinel) eachRule(table string, request []byte, visit func(chain string, digest uint64)) error {
	var sum maphash.Hash
	sum.SetSeed(digestSeed)
	return s.ask(nftGetRule, unix.NLM_F_DUMP, request, func(attrs []byte) {
		var in, chain []byte
		sum.Reset()
		eachAttr(attrs, func(kind uint16, value []byte) {
			switch kind {
			case ruleTable:
				in = value
			case ruleChain:
				chain = value
			case ruleExprs:
				hashExpressions(&sum, value)
			case ruleUser:
				sum.Write(value)
			}
		})
		if text(in) == table {
			visit(text(chain), sum.Sum64())
		}
	})
}

// chained adds a rule's digest to its chain's.
func chained(chain, rule uint64) uint64 {
	var sum maphash.Hash
	sum.SetSeed(digestSeed)
	var both [16]byte
	binary.NativeEndian.PutUint64(both[:8], chain)
	binary.NativeEndian.PutUint64(both[8:], rule)
	sum.Write(both[:])
	return sum.Sum64() | 1 // 0 is an empty chain's
}

// hashExpressions adds a rule's expressions, but for counters.
func hashExpressions(sum *maphash.Hash, list []byte) {
	eachAttr(list, func(_ uint16, expression []byte) {
		if !isCounter(expression) {
			sum.Write(expression)
		}
	})
}

// ask sends one request and hands each answer's attributes to take.
func (s *nftSentinel) ask(kind, flags uint16, attrs []byte, take func(attrs []byte)) error {
	s.seq++
	request := make([]byte, netlinkHeader+nfnlHeader, netlinkHeader+nfnlHeader+len(attrs))
	request[netlinkHeader] = s.family
	request = append(request, attrs...)
	binary.NativeEndian.PutUint32(request, uint32(len(request)))
	binary.NativeEndian.PutUint16(request[4:], kind)
	binary.NativeEndian.PutUint16(request[6:], unix.NLM_F_REQUEST|flags)
	binary.NativeEndian.PutUint32(request[8:], s.seq)
	if err := unix.Sendto(s.socket, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("ask nf_tables: %w", err)
	}
	interrupted := false
	for {
		n, _, err := unix.Recvfrom(s.socket, s.buffer, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read nf_tables' answer: %w", err)
		}
		for rest := s.buffer[:n]; len(rest) >= netlinkHeader; {
			size := int(binary.NativeEndian.Uint32(rest))
			if size < netlinkHeader || size > len(rest) {
				return fmt.Errorf("nf_tables' answer is cut short: %w", unix.EBADMSG)
			}
			message := rest[:size]
			rest = rest[min(len(rest), (size+3)&^3):]
			if binary.NativeEndian.Uint32(message[8:]) != s.seq {
				continue // left over from a request that was given up
			}
			interrupted = interrupted || binary.NativeEndian.Uint16(message[6:])&unix.NLM_F_DUMP_INTR != 0
			switch binary.NativeEndian.Uint16(message[4:]) {
			case unix.NLMSG_ERROR, unix.NLMSG_DONE:
				if interrupted {
					return ErrBusy
				}
				return answered(message)
			default:
				if size >= netlinkHeader+nfnlHeader {
					take(message[netlinkHeader+nfnlHeader:])
				}
			}
			if flags&unix.NLM_F_DUMP == 0 {
				return nil
			}
		}
	}
}

// answered is the result that the last message of an answer tells.
func answered(message []byte) error {
	if len(message) < netlinkHeader+4 {
		return nil
	}
	switch number := unix.Errno(-int32(binary.NativeEndian.Uint32(message[netlinkHeader:]))); number {
	case 0, unix.ENOENT: // a table that is not there has no rules
		return nil
	case unix.EINTR:
		return ErrBusy
	default:
		return fmt.Errorf("nf_tables answers: %w", number)
	}
}

// attr encodes one netlink attribute.
func attr(kind uint16, value []byte) []byte {
	out := make([]byte, 4, 4+(len(value)+3)&^3)
	binary.NativeEndian.PutUint16(out, uint16(4+len(value)))
	binary.NativeEndian.PutUint16(out[2:], kind)
	out = append(out, value...)
	return out[:cap(out)]
}

// eachAttr visits netlink attributes; what is cut short ends it.
func eachAttr(attrs []byte, visit func(kind uint16, value []byte)) {
	for len(attrs) >= 4 {
		size := int(binary.NativeEndian.Uint16(attrs))
		if size < 4 || size > len(attrs) {
			return
		}
		visit(binary.NativeEndian.Uint16(attrs[2:])&attrTypeMask, attrs[4:size])
		attrs = attrs[min(len(attrs), (size+3)&^3):]
	}
}

// attrOf is the value of the attribute of a kind; nil where there is none.
func attrOf(attrs []byte, kind uint16) (found []byte) {
	eachAttr(attrs, func(k uint16, value []byte) {
		if k == kind {
			found = value
		}
	})
	return found
}

// text is an attribute's string without the zero at its end.
func text(value []byte) string {
	if n := len(value); n > 0 && value[n-1] == 0 {
		value = value[:n-1]
	}
	return string(value)
}
