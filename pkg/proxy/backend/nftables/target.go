package nftables

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// target is a chain that a verdict of the frontend maps leads to. There is one for each combination of treatment and
// number of slots, not one for each Service.
type target struct {
	kind kind
	// nodePort reports that the frontend is a node port, which has its own maps.
	nodePort bool
	// guarded reports that source ranges are checked first.
	guarded bool
	// fence names the bounds of connections that are checked then; 0 is none.
	fence uint64
	// n is the number of slots; for a local target, that of the short cut, and m that of the local pool.
	n, m uint32
	// by is how a slot is picked.
	by cluster.Algorithm
	// seconds is the timeout of session affinity; 0 is none. id then identifies the pool, and also if slots are picked one after
	// the other; for a remember target it is the service port, for a from target the list, for a bounds target the fence.
	seconds uint32
	id      uint64
}

// kind is how a target handles connections.
type kind uint8

const (
	none kind = iota
	// bounds drops connections that a fence excludes.
	bounds
	// pick balances over n slots of the endpoint map.
	pick
	// pickLocal balances over n slots of the local endpoint map.
	pickLocal
	// internal masquerades connections from outside the cluster, then picks.
	internal
	// external masquerades all connections, then picks.
	external
	// local uses the short cut for local traffic, and local endpoints for everything else.
	local
	// from drops connections from outside a list of source ranges.
	from
	// remember records the endpoint of a client.
	remember
)

var kindNames = [...]string{none: "", bounds: "fence", pick: "pick", pickLocal: "pick-local", internal: "internal", external: "external",
	local: "local", from: "from", remember: "remember"}

const (
	nodePortPrefix = "nodeport-"
	guardedPrefix  = "guarded-"
	fencedPrefix   = "fenced-"
	stickyInfix    = "-sticky-"
)

// name returns the chain's name: nodeport-local-3-2, external-3, guarded-external-3, fenced-0123456789abcdef-external-3, pick-3-sticky-10800-0123456789abcdef,
// pick-maglev-8192, pick-round-robin-3-0123456789abcdef, from-0123456789abcdef, fence-0123456789abcdef, remember-10800-0123456789abcdef.
func (t target) name() string {
	name := kindNames[t.kind]
	switch t.kind {
	case from, bounds:
		return fmt.Sprintf("%s-%016x", name, t.id)
	case remember:
		return fmt.Sprintf("%s-%d-%016x", name, t.seconds, t.id)
	}
	if t.nodePort {
		name = nodePortPrefix + name
	}
	if t.fence != 0 {
		name = fmt.Sprintf("%s%016x-%s", fencedPrefix, t.fence, name)
	}
	if t.guarded {
		name = guardedPrefix + name
	}
	if t.by != cluster.Random {
		name += "-" + t.by.String()
	}
	if t.n > 0 {
		name += "-" + strconv.FormatUint(uint64(t.n), 10)
	}
	if t.kind == local {
		name += "-" + strconv.FormatUint(uint64(t.m), 10)
	}
	switch {
	case t.seconds > 0:
		name += fmt.Sprintf("%s%d-%016x", stickyInfix, t.seconds, t.id)
	case t.by == cluster.RoundRobin:
		name += fmt.Sprintf("-%016x", t.id)
	}
	return name
}

// parseTarget is the inverse of name.
func parseTarget(name string) (target, error) {
	var t target
	number := func(text string, base int) uint64 { // an invalid name does not equal its target's
		n, _ := strconv.ParseUint(text, base, 64)
		return n
	}
	rest, guarded := strings.CutPrefix(name, guardedPrefix)
	if id, fenced := strings.CutPrefix(rest, fencedPrefix); fenced {
		id, rest, _ = strings.Cut(id, "-")
		t.fence = number(id, 16)
	}
	rest, nodePort := strings.CutPrefix(rest, nodePortPrefix)
	t.guarded, t.nodePort = guarded, nodePort
	sized, sticky, _ := strings.Cut(rest, stickyInfix)
	for k, known := range kindNames { // the longest prefix: pick is also a prefix of pick-local
		if (sized == known || strings.HasPrefix(sized, known+"-")) && len(known) > len(kindNames[t.kind]) {
			t.kind = kind(k)
		}
	}
	sized = sized[len(kindNames[t.kind]):]
	for _, by := range []cluster.Algorithm{cluster.RoundRobin, cluster.SourceHash, cluster.Maglev} {
		if counts, is := strings.CutPrefix(sized, "-"+by.String()+"-"); is {
			t.by, sized = by, counts
		}
	}
	numbers := strings.Split(strings.TrimPrefix(sized, "-")+"--", "-")
	switch t.kind {
	case from, bounds:
		t.id = number(numbers[0], 16)
	case remember:
		t.seconds, t.id = uint32(number(numbers[0], 10)), number(numbers[1], 16)
	default:
		if t.kind != local { // the only one with a second count
			numbers = slices.Insert(numbers, 1, "")
		}
		seconds, id, _ := strings.Cut(sticky, "-")
		t.n, t.m = uint32(number(numbers[0], 10)), uint32(number(numbers[1], 10))
		t.seconds, t.id = uint32(number(seconds, 10)), number(id, 16)
		if t.by == cluster.RoundRobin && t.seconds == 0 {
			t.id = number(numbers[2], 16)
		}
	}
	empty := t.n == 0 && t.kind >= pick && t.kind <= local
	if t.kind == none || empty || t.name() != name {
		return target{}, fmt.Errorf("%q is not a chain of this proxy", name)
	}
	return t, nil
}

// Compare sorts targets so that a target comes before those that lead to it.
func (t target) Compare(o target) int {
	if c := cmp.Compare(t.kind, o.kind); c != 0 {
		return c
	}
	for _, differs := range [...][2]bool{{t.guarded, o.guarded}, {t.fence != 0, o.fence != 0}, {t.nodePort, o.nodePort}} {
		switch {
		case differs[0] && !differs[1]:
			return 1
		case differs[1] && !differs[0]:
			return -1
		}
	}
	return cmp.Or(cmp.Compare(t.by, o.by), cmp.Compare(t.n, o.n), cmp.Compare(t.m, o.m), cmp.Compare(t.seconds, o.seconds), cmp.Compare(t.id, o.id), cmp.Compare(t.fence, o.fence))
}

// sharedSlots returns the number of slots in the endpoint map of a frontend with this target.
func (t target) sharedSlots() uint32 {
	if t.kind == pickLocal {
		return 0
	}
	return t.n
}

// ownSlots returns the number of slots in the local endpoint map of a frontend with this target.
func (t target) ownSlots() uint32 {
	if t.kind == pickLocal {
		return t.n
	}
	return t.m
}

// onward returns the target that t leads to, for the same clients.
func (t target) onward(k kind, n uint32) target {
	next := target{kind: k, nodePort: t.nodePort, n: n, by: t.by, seconds: t.seconds, id: t.id}
	if k == pickLocal && t.id != 0 {
		next.id |= uint64(localBit)
	}
	if t.seconds == 0 {
		return next.picking()
	}
	return next
}

// unguarded returns the target that does not check source ranges.
func (t target) unguarded() target {
	t.guarded = false
	return t
}

// unfenced returns the target that checks no bounds.
func (t target) unfenced() target {
	t.fence = 0
	return t
}

// forgetful returns the target that balances without affinity.
func (t target) forgetful() target {
	if t.seconds = 0; t.by != cluster.RoundRobin {
		t.id = 0
	}
	return t.picking()
}

// picking returns the target that picks as t does: a single slot is not picked.
func (t target) picking() target {
	if t.n == 1 {
		return t.first()
	}
	return t
}

// first returns the target that sends to the endpoint in slot 0.
func (t target) first() target { return target{kind: t.kind, nodePort: t.nodePort, n: 1} }

// needs returns the target and every chain that it leads to.
func (t target) needs() []target {
	switch {
	case t.guarded:
		return append(t.unguarded().needs(), t)
	case t.fence != 0:
		return append(t.unfenced().needs(), target{kind: bounds, id: t.fence}, t)
	}
	switch t.kind {
	case pick, pickLocal:
		switch {
		case t.seconds > 0:
			return append(t.forgetful().needs(), t)
		case t.n > 1:
			return []target{t.first(), t}
		}
		return []target{t}
	case internal, external:
		return append(t.onward(pick, t.n).needs(), t)
	case local:
		all := append(t.onward(external, t.n).needs(), t)
		if t.m > 0 {
			all = append(all, t.onward(pickLocal, t.m).needs()...)
		}
		return all
	case from, bounds, remember:
		return []target{t}
	default:
		return nil
	}
}
