package nftables

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// target is a chain that a verdict of the frontend maps goes to. There is one for each combination of how
// connections are treated and how many slots there are, not one for each Service.
type target struct {
	kind kind
	// nodePort tells that the frontend is a port on the node's own addresses, which has maps of its own.
	nodePort bool
	// n is the number of slots; of a local target, that of the short cut, and m that of the local pool.
	n, m uint32
}

// kind is how a target treats connections.
type kind uint8

const (
	none kind = iota
	// pick balances over n slots of the endpoint map.
	pick
	// pickLocal balances over n slots of the local endpoint map.
	pickLocal
	// internal masquerades what comes from off the cluster, then picks.
	internal
	// external masquerades everything, then picks.
	external
	// local takes the short cut for local traffic and picks among local endpoints for everything else.
	local
	// reject and drop are for frontends that no endpoint serves.
	reject
	drop
)

var kindNames = [...]string{none: "", pick: "pick", pickLocal: "pick-local", internal: "internal", external: "external",
	local: "local", reject: "rejected", drop: "dropped"}

const nodePortPrefix = "nodeport-"

// name is the chain's name: nodeport-local-3-2, external-3, rejected.
func (t target) name() string {
	name := kindNames[t.kind]
	if t.nodePort {
		name = nodePortPrefix + name
	}
	if t.n > 0 {
		name += "-" + strconv.FormatUint(uint64(t.n), 10)
	}
	if t.kind == local {
		name += "-" + strconv.FormatUint(uint64(t.m), 10)
	}
	return name
}

// parseTarget is the reverse of name.
func parseTarget(name string) (target, error) {
	var t target
	rest, nodePort := strings.CutPrefix(name, nodePortPrefix)
	t.nodePort = nodePort
	var numbers []uint32
	for len(numbers) < 2 {
		dash := strings.LastIndexByte(rest, '-')
		if dash < 0 {
			break
		}
		number, err := strconv.ParseUint(rest[dash+1:], 10, 32)
		if err != nil {
			break
		}
		numbers, rest = append([]uint32{uint32(number)}, numbers...), rest[:dash]
	}
	for k, known := range kindNames {
		if known == rest {
			t.kind = kind(k)
		}
	}
	if len(numbers) > 0 {
		t.n = numbers[0]
	}
	if len(numbers) > 1 {
		t.m = numbers[1]
	}
	if t.kind == none || t.name() != name {
		return target{}, fmt.Errorf("%q is not a chain of this proxy", name)
	}
	return t, nil
}

// Compare sorts targets so that those that others go to come first.
func (t target) Compare(o target) int {
	if c := cmp.Compare(t.kind, o.kind); c != 0 {
		return c
	}
	if t.nodePort != o.nodePort {
		if o.nodePort {
			return -1
		}
		return 1
	}
	if c := cmp.Compare(t.n, o.n); c != 0 {
		return c
	}
	return cmp.Compare(t.m, o.m)
}

// needs lists the target and every sized chain that it goes on to.
func (t target) needs() []target {
	onward := func(k kind, n uint32) target { return target{kind: k, nodePort: t.nodePort, n: n} }
	switch t.kind {
	case pick, pickLocal:
		return []target{t}
	case internal, external:
		return []target{onward(pick, t.n), t}
	case local:
		all := []target{onward(pick, t.n), onward(external, t.n), t}
		if t.m > 0 {
			all = append(all, onward(pickLocal, t.m))
		}
		return all
	default: // reject and drop are always there
		return nil
	}
}
