package nftables

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Clients are remembered per pool, so that all addresses of a service port share them. A service port with affinity has a pool
// for each traffic policy, each with a map of its own, so that no client can fill another one's.
// docs/decisions/0029-affinity-is-bounded-per-port.md has the reasons.

// poolID identifies a pool in rules and keys, as two constants of 32 bits. The lowest bit is 1 for the pool of policy Local, the next
// two are the size of its map.
type poolID uint64

const (
	localBit  poolID = 1
	sizeShift        = 1
	sizeBits  poolID = 3 << sizeShift
)

// mapSizes are those of affinity maps, in clients. They limit the memory that external clients can use (about 3 MB for the largest), and the
// time to read a map (some 30 ms), which delays changes of others. The kernel allocates more for a larger one, even if it is empty.
var mapSizes = [...]int{20_000, 2000, 200}

// poolOf returns the Cluster pool of a route's service port. It is a hash of the name, so that no user can choose a name
// that shares another port's clients.
func poolOf(r *plan.Route) poolID {
	sum := sha256.Sum256([]byte(r.Name + "/" + r.Frontend.Protocol.String()))
	size := 0
	for r.Affinity != nil && size < len(mapSizes)-1 && mapSizes[size] > r.Affinity.Clients {
		size++
	}
	return poolID(binary.BigEndian.Uint64(sum[:]))&^(localBit|sizeBits) | poolID(size)<<sizeShift
}

// size returns the size of the pool's affinity map.
func (p poolID) size() int { return mapSizes[min(int(p&sizeBits>>sizeShift), len(mapSizes)-1)] }

// Compare sorts by number.
func (p poolID) Compare(o poolID) int { return cmp.Compare(p, o) }

// words returns the two constants.
func (p poolID) words() (high, low uint32) { return uint32(p >> 32), uint32(p) }

// operands returns the constants as part of a key.
func (p poolID) operands() nft.Concat {
	high, low := p.words()
	return nft.Concat{nft.Constant(high), nft.Constant(low)}
}

// maps returns the pools of a service port, each of which has an affinity map.
func (p poolID) maps() [2]poolID { return [2]poolID{p &^ localBit, p | localBit} }

const affinityPrefix = "affinity-"

// clients returns the name of the pool's affinity map, such as affinity-0123456789abcdef.
func (p poolID) clients() string { return fmt.Sprintf("%s%016x", affinityPrefix, uint64(p)) }

// parseClients is the inverse of clients.
func parseClients(name string) (poolID, bool) {
	digits, ok := strings.CutPrefix(name, affinityPrefix)
	id, err := strconv.ParseUint(digits, 16, 64)
	return poolID(id), ok && err == nil && poolID(id).clients() == name
}

// client is the key of an affinity map. nft reads a translation of a port only if the rule knows the protocol.
func client() nft.Concat { return nft.Concat{nft.SourceAddress, nft.Protocol} }
