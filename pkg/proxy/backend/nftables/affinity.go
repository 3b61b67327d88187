package nftables

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Session affinity is remembered per client and pool, so that all addresses of a service port share it; a
// service port has a pool for each traffic policy. docs/decisions/0010-session-affinity.md tells why so.

// poolID tells the pools of service ports apart, in rules and keys: two constants of 32 bits. The lowest bit
// is 1 for the pool of the Local policy.
type poolID uint64

const localBit poolID = 1

// poolOf names the Cluster pool of the service port that a route is of. Names are digested so that nobody
// can choose one that meets another's clients.
func poolOf(r *plan.Route) poolID {
	sum := sha256.Sum256([]byte(r.Name + "/" + r.Frontend.Protocol.String()))
	return poolID(binary.BigEndian.Uint64(sum[:])) &^ localBit
}

// Compare sorts by number.
func (p poolID) Compare(o poolID) int { return cmp.Compare(p, o) }

// words are the two constants.
func (p poolID) words() (high, low uint32) { return uint32(p >> 32), uint32(p) }

// operands are the constants as part of a key.
func (p poolID) operands() nft.Concat {
	high, low := p.words()
	return nft.Concat{nft.Constant(high), nft.Constant(low)}
}

// client is the key of a pool's clients in affinity maps.
func (p poolID) client() nft.Concat {
	return append(nft.Concat{nft.SourceAddress, nft.Protocol}, p.operands()...)
}

// timeout is how long clients are remembered, in seconds. There is an affinity map for each that is in use.
type timeout uint32

const affinityPrefix = "affinity-"

// maxClients is how many clients an affinity map remembers. It bounds the memory that strangers' packets can
// take (some 10 MB), and the time in which a map is searched for those of an endpoint that left (below 1 s).
const maxClients = 65_536

// Compare sorts by length.
func (t timeout) Compare(o timeout) int { return cmp.Compare(t, o) }

// name is the map's name: affinity-10800.
func (t timeout) name() string { return affinityPrefix + strconv.FormatUint(uint64(t), 10) }

// parseTimeout is the reverse of name.
func parseTimeout(name string) (timeout, bool) {
	digits, ok := strings.CutPrefix(name, affinityPrefix)
	seconds, err := strconv.ParseUint(digits, 10, 32)
	t := timeout(seconds)
	return t, ok && err == nil && t > 0 && t.name() == name
}

// members are the endpoints that a pool's clients may stay with.
type members struct {
	// users counts the entries that balance over the pool.
	users     int
	seconds   timeout
	endpoints []netip.AddrPort
}

func (m *members) list() []netip.AddrPort {
	if m == nil {
		return nil
	}
	return m.endpoints
}

// stick makes an entry's connections return to where their client has been.
func (e *entry) stick(r *plan.Route) {
	if r.Affinity < time.Second || e.goes.kind == none {
		return
	}
	pool := poolOf(r)
	e.remember = target{kind: remember, seconds: timeout(r.Affinity / time.Second), id: uint64(pool)}
	e.goes.seconds = e.remember.seconds
	if e.goes.kind != local && r.Policy == cluster.PolicyLocal {
		pool |= localBit
	}
	e.goes.id = uint64(pool)
}

// eachPool gives the pools whose clients the entry remembers.
func (e *entry) eachPool(yield func(poolID, []netip.AddrPort)) {
	if e.goes.seconds == 0 {
		return
	}
	yield(poolID(e.goes.id), e.slots)
	if e.goes.kind == local && e.goes.m > 0 {
		yield(poolID(e.goes.id)|localBit, e.local)
	}
}

// affinity adds to a patch what there is to do about clients and where they stay.
func (p *patch) affinity(have, want *ruleset) {
	for t, change := range cluster.Changes(have.timeouts, want.timeouts) {
		switch {
		case !change.Is:
			p.delTimeouts = append(p.delTimeouts, t)
		case !change.Was:
			p.addTimeouts = append(p.addTimeouts, t)
		}
	}
	forget := map[timeout]bool{}
	for pool, change := range cluster.Changes(have.pools, want.pools) {
		before, after := change.Before.list(), change.After.list()
		for _, endpoint := range after {
			if !slices.Contains(before, endpoint) {
				p.sets = append(p.sets, op{verb: add, set: setSticky, pool: pool, to: endpoint})
			}
		}
		left := change.Was && change.Is && change.Before.seconds != change.After.seconds
		for _, endpoint := range before {
			if !slices.Contains(after, endpoint) {
				left = true
				p.sets = append(p.sets, op{verb: remove, set: setSticky, pool: pool, to: endpoint})
			}
		}
		if left && change.Before.seconds > 0 {
			forget[change.Before.seconds] = true
		}
	}
	for t := range want.timeouts.All() {
		// What was read from the kernel may remember endpoints that left while nobody looked.
		if _, was := have.timeouts.Get(t); was && (forget[t] || have.from == nil) {
			p.forget = append(p.forget, t)
		}
	}
}

// remembers tells whether an element of an affinity map leads to an endpoint that its client may stay with.
func (r *ruleset) remembers(t timeout, pool poolID, endpoint netip.AddrPort) bool {
	m, ok := r.pools.Get(pool)
	return ok && m.seconds == t && slices.Contains(m.endpoints, endpoint)
}
