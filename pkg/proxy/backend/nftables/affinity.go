package nftables

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Clients are remembered per pool, so that all addresses of a service port share them. A service port has a pool for
// each traffic policy. docs/decisions/0010-session-affinity.md has the reasons.

// poolID identifies a pool in rules and keys, as two constants of 32 bits. The lowest bit is 1 for the pool of policy Local.
type poolID uint64

const localBit poolID = 1

// poolOf returns the Cluster pool of a route's service port. It is a hash of the name, so that nobody can choose a name
// that shares another port's clients.
func poolOf(r *plan.Route) poolID {
	sum := sha256.Sum256([]byte(r.Name + "/" + r.Frontend.Protocol.String()))
	return poolID(binary.BigEndian.Uint64(sum[:])) &^ localBit
}

// Compare sorts by number.
func (p poolID) Compare(o poolID) int { return cmp.Compare(p, o) }

// words returns the two constants.
func (p poolID) words() (high, low uint32) { return uint32(p >> 32), uint32(p) }

// operands returns the constants as part of a key.
func (p poolID) operands() nft.Concat {
	high, low := p.words()
	return nft.Concat{nft.Constant(high), nft.Constant(low)}
}

// client is the key of a pool's clients in affinity maps.
func (p poolID) client() nft.Concat {
	return append(nft.Concat{nft.SourceAddress, nft.Protocol}, p.operands()...)
}

// timeout is how long clients are remembered, in seconds. There is an affinity map for each timeout in use.
type timeout uint32

const affinityPrefix = "affinity-"

// Compare sorts by length.
func (t timeout) Compare(o timeout) int { return cmp.Compare(t, o) }

// name returns the map's name, such as affinity-10800.
func (t timeout) name() string { return affinityPrefix + strconv.FormatUint(uint64(t), 10) }

// parseTimeout is the inverse of name.
func parseTimeout(name string) (timeout, bool) {
	digits, ok := strings.CutPrefix(name, affinityPrefix)
	seconds, err := strconv.ParseUint(digits, 10, 32)
	t := timeout(seconds)
	return t, ok && err == nil && t > 0 && t.name() == name
}
