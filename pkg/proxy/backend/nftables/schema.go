package nftables

import (
	"bytes"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// The names of the sets and maps that rules look up. If the declaration of a set changes in a later version, the set
// needs a new name, because the old one stays in use until the new one is complete.
const (
	mapServices      = "services"
	mapNodePorts     = "nodeports"
	mapEndpoints     = "endpoints"
	mapLocal         = "local-endpoints"
	mapNodePortEnds  = "nodeport-endpoints"
	mapNodePortLocal = "nodeport-local-endpoints"
	mapFirewall      = "firewall"
	mapSticky        = "sticky-services"
	mapStickyPorts   = "sticky-nodeports"
	setSticky        = "sticky-endpoints"
	setUnserved      = "unserved"
	setUnservedPorts = "unserved-nodeports"
	setDropped       = "unserved-dropped"
	setDroppedPorts  = "unserved-dropped-nodeports"
	setClusterIPs    = "cluster-addresses"
	setNodeAddrs     = "node-addresses"
	setHairpins      = "hairpins"
	setWatched       = "watched-endpoints"
	setOnLocalhost   = "localhost-nodeports"
	setLimited       = "limited"
	setLimitedPorts  = "limited-nodeports"
	setFast          = "fast-path-services"
	setFastPorts     = "fast-path-nodeports"
)

// uncounted ends the names of sets whose elements do not count, but would at another level.
const uncounted = "-uncounted"

// set is a row of the schema: a set or map, the columns of its keys and values, and the source of its elements.
// Everything that handles elements is a loop over the rows.
type set struct {
	dialect
	name string
	key  []column
	// value is for data maps. Verdict maps have none; their elements lead to chains.
	value   []column
	verdict bool
	// byType reports that the set is declared by types, because rules look it up by different expressions.
	byType bool
	// size is that of a set that packets write, in clients; timeout reports that its elements have one.
	size    int
	timeout bool
	// counts reports that each element counts the packets that match it.
	counts bool
	// limits reports that it counts what exceeds bounds, not what has no endpoint.
	limits bool
	// phase orders the sets within a patch, and for reading.
	phase phase
	// cells are the elements of an entry, in a set that is keyed by frontends; nodePort reports that these are node ports.
	cells    *cells
	nodePort bool
	// members are the elements of a content, in any other set. An affinity map has neither: packets write it.
	members memberList
}

// phase orders how a patch fills sets; it clears them in the reverse order, so that an element is complete before anything
// leads to it. Sets are read in the reverse order too, because the verdicts contain the number of slots of a frontend.
type phase int

const (
	phaseMembers phase = iota
	phaseSlots
	phaseGuards
	phaseVerdicts
	phases
)

// phaseSets are the sets of one phase, by kind of key.
type phaseSets struct{ members, frontends, nodePorts []*set }

// schema is the table of sets of one family. It is immutable.
type schema struct {
	dialect
	// counting is what elements count. A set whose elements do not count although they might has another name, because
	// the declaration of a set cannot be changed while it is in use.
	counting backend.Counting
	// fast adds a fast path, and what leads to it.
	fast   bool
	sets   []*set
	phases [phases]phaseSets
}

// newSchema returns the schema of a family. Sets that change most come first, because the kernel finds a set by walking
// a list.
func newSchema(family cluster.Family, counting backend.Counting, fast bool) *schema {
	d := dialectOf(family)
	frontend, endpoint := d.frontendColumns(), d.endpointColumns()
	nodePort := frontend[1:]
	slots := slotCells(func(e *entry) []netip.AddrPort { return e.slots },
		func(e *entry) *[]netip.AddrPort { return &e.slots }, target.sharedSlots)
	locals := slotCells(func(e *entry) []netip.AddrPort { return e.getRare().local },
		func(e *entry) *[]netip.AddrPort { return &e.editRare().local }, target.ownSlots)
	goes := verdictCells(func(e *entry) target { return e.goes }, func(e *entry) *target { return &e.goes })
	from := verdictCells(func(e *entry) target { return e.getRare().from }, func(e *entry) *target { return &e.editRare().from })
	remember := verdictCells(func(e *entry) target { return e.getRare().remember }, func(e *entry) *target { return &e.editRare().remember })
	unserved := flagCells(func(t *terms) *bool { return &t.unserved }, true)
	dropped := flagCells(func(t *terms) *bool { return &t.dropped }, true)
	limited := flagCells(func(t *terms) *bool { return &t.limited }, true)
	onLocalhost := flagCells(func(t *terms) *bool { return &t.onLocalhost }, false)
	s := &schema{dialect: d, counting: counting, fast: fast, sets: []*set{
		{name: mapEndpoints, key: withSlot(frontend), value: endpoint, counts: true, phase: phaseSlots, cells: slots},
		{name: mapServices, key: frontend, verdict: true, counts: true, phase: phaseVerdicts, cells: goes},
		{name: mapNodePortEnds, key: withSlot(nodePort), value: endpoint, counts: true, phase: phaseSlots, cells: slots, nodePort: true},
		{name: mapNodePorts, key: nodePort, verdict: true, counts: true, phase: phaseVerdicts, cells: goes, nodePort: true},
		// Endpoints under an external Local policy.
		{name: mapLocal, key: withSlot(frontend), value: endpoint, counts: true, phase: phaseSlots, cells: locals},
		{name: mapNodePortLocal, key: withSlot(nodePort), value: endpoint, counts: true, phase: phaseSlots, cells: locals, nodePort: true},
		// Chains that check source ranges.
		{name: mapFirewall, key: frontend, verdict: true, counts: true, phase: phaseGuards, cells: from},
		// Endpoints of pools with affinity, and chains that remember clients.
		{name: setSticky, key: slices.Concat(endpoint, poolColumns()), phase: phaseMembers, members: poolMembers{}},
		{name: mapSticky, key: frontend, verdict: true, byType: true, phase: phaseVerdicts, cells: remember},
		{name: mapStickyPorts, key: nodePort, verdict: true, byType: true, phase: phaseVerdicts, cells: remember, nodePort: true},
		{name: setHairpins, key: []column{frontend[0], frontend[0]}, byType: true, phase: phaseMembers, members: addrMembers{d.family, hairpins}},
		// Endpoints that may be on this node, and those of pools with affinity.
		{name: setWatched, key: frontend[:1], byType: true, phase: phaseMembers, members: addrMembers{d.family, watched}},
		// Frontends without an endpoint, and among them those without a local endpoint under policy Local.
		{name: setDropped, key: frontend, phase: phaseGuards, cells: dropped},
		{name: setDroppedPorts, key: nodePort, phase: phaseGuards, cells: dropped, nodePort: true},
		{name: setUnserved, key: frontend, counts: true, phase: phaseVerdicts, cells: unserved},
		{name: setUnservedPorts, key: nodePort, counts: true, phase: phaseVerdicts, cells: unserved, nodePort: true},
		// Frontends whose connections are bounded; they count what exceeds that.
		{name: setLimited, key: frontend, counts: true, limits: true, phase: phaseVerdicts, cells: limited},
		{name: setLimitedPorts, key: nodePort, counts: true, limits: true, phase: phaseVerdicts, cells: limited, nodePort: true},
		{name: setClusterIPs, key: frontend[:1], byType: true, phase: phaseMembers, members: addrMembers{d.family, clusterIPs}},
		{name: setNodeAddrs, key: frontend[:1], byType: true, phase: phaseMembers, members: addrMembers{d.family, nodeAddrs}},
		{name: setOnLocalhost, key: nodePort, phase: phaseVerdicts, cells: onLocalhost, nodePort: true},
	}}
	if fast {
		cells := flagCells(func(t *terms) *bool { return &t.fast }, true)
		s.sets = append(s.sets, &set{name: setFast, key: frontend, byType: true, phase: phaseVerdicts, cells: cells},
			&set{name: setFastPorts, key: nodePort, byType: true, phase: phaseVerdicts, cells: cells, nodePort: true})
	}
	for _, set := range s.sets {
		set.dialect = d
		if set.counts && counting > set.needs() {
			set.counts, set.name = false, set.name+uncounted
		}
		in := &s.phases[set.phase]
		switch {
		case set.members != nil:
			in.members = append(in.members, set)
		case set.nodePort:
			in.nodePorts = append(in.nodePorts, set)
		default:
			in.frontends = append(in.frontends, set)
		}
	}
	return s
}

// clients returns the affinity map of a pool: it maps a client to an endpoint.
func (s *schema) clients(pool poolID) *set {
	return &set{dialect: s.dialect, name: pool.clients(), key: []column{s.addrColumn("saddr", frontendAddr), protocolColumn()}, value: s.endpointColumns(), byType: true, size: pool.size(), timeout: true}
}

// ref returns the name that a set of a schema with all counters has in this one.
func (s *schema) ref(name string) string {
	if s.named(name+uncounted) != nil {
		return name + uncounted
	}
	return name
}

// named returns a set by name; nil if there is none.
func (s *schema) named(name string) *set {
	i := slices.IndexFunc(s.sets, func(s *set) bool { return s.name == name })
	if i < 0 {
		return nil
	}
	return s.sets[i]
}

// dynamic reports whether packets write the set.
func (s *set) dynamic() bool { return s.cells == nil && s.members == nil }

// needs returns the most sparing level at which the elements count.
func (s *set) needs() backend.Counting {
	if s.cells.slots != nil {
		return backend.CountEndpoints
	}
	return backend.CountServices
}

// isMap reports whether the set is a map.
func (s *set) isMap() bool { return s.verdict || len(s.value) > 0 }

// types returns the declaration of the set: its types, or the expressions for typeof.
func (s *set) types() (typ, typeOf string) {
	join := func(columns []column) string {
		var parts []string
		for _, c := range columns {
			if s.byType {
				parts = append(parts, c.typ)
			} else {
				parts = append(parts, c.expr)
			}
		}
		return strings.Join(parts, " . ")
	}
	types := join(s.key)
	switch {
	case s.verdict:
		types += " : verdict"
	case len(s.value) > 0:
		types += " : " + join(s.value)
	}
	if s.byType {
		return types, ""
	}
	return "", types
}

// lines returns the set's declaration as nft lists it, the title first.
func (s *set) lines() []string {
	title := "set " + s.name
	if s.isMap() {
		title = "map " + s.name
	}
	typ, typeOf := s.types()
	types := "type " + typ
	if !s.byType {
		types = "typeof " + typeOf
	}
	switch {
	case s.dynamic():
		flags := "flags dynamic"
		if s.timeout {
			flags += ",timeout"
		}
		return []string{title, types, fmt.Sprintf("size %d", s.size), flags}
	case s.counts:
		return []string{title, types, "counter"}
	}
	return []string{title, types}
}

// title names the set with its kind.
func (s *set) title() string { return s.lines()[0] }

// buffer is reusable memory for encoding and decoding elements. There may be a quarter of a million of them.
type buffer struct {
	key, value []byte
	decoded    element
	// names and targets are those of the chains so far, because many elements lead to one; nil if nothing is remembered.
	names   map[target]string
	targets map[string]target
}

// newBuffer returns a buffer for many elements.
func newBuffer() *buffer { return &buffer{names: map[target]string{}, targets: map[string]target{}} }

// name returns the name of a chain.
func (in *buffer) name(t target) string {
	name, known := in.names[t]
	if !known {
		name = t.name()
		in.remember(t, name)
	}
	return name
}

// target returns the chain of a name.
func (in *buffer) target(name string) (t target, err error) {
	t, known := in.targets[name]
	if !known {
		if t, err = parseTarget(name); err == nil {
			in.remember(t, name)
		}
	}
	return t, err
}

func (in *buffer) remember(t target, name string) {
	if in.names != nil {
		in.names[t], in.targets[name] = name, t
	}
}

// encode returns the kernel's element, which is valid until the buffer is used again.
func (s *set) encode(e *element, in *buffer) nf.Element {
	in.key, in.value = in.key[:0], in.value[:0]
	for i := range s.key {
		in.key = s.key[i].encode(in.key, e)
	}
	for i := range s.value {
		in.value = s.value[i].encode(in.value, e)
	}
	encoded := nf.Element{Key: in.key, Value: in.value, Comment: e.comment}
	if s.verdict {
		encoded.Chain = in.name(e.goes)
	}
	return encoded
}

// decode decodes an element from the kernel; the result is valid until the buffer is used again. It fails for elements
// that this proxy does not write.
func (s *set) decode(raw *nf.Element, in *buffer) (e *element, err error) {
	in.decoded = element{comment: raw.Comment}
	e = &in.decoded
	if s.nodePort {
		e.frontend.Addr = s.any
	}
	if s.verdict {
		if e.goes, err = in.target(raw.Chain); err != nil {
			return nil, err
		}
	}
	fits := decodeAll(s.key, raw.Key, e) && decodeAll(s.value, raw.Value, e)
	again := s.encode(e, in) // differs if a repeated column or padding does
	// No Service has the unspecified address, which stands for node ports.
	if !fits || raw.Foreign || !bytes.Equal(again.Key, raw.Key) || !bytes.Equal(again.Value, raw.Value) || s.cells != nil && e.frontend.IsNodePort() != s.nodePort {
		return nil, fmt.Errorf("%s: element %x : %x is not one of this proxy's", s.name, raw.Key, raw.Value)
	}
	return e, nil
}

// decodeAll decodes columns, and reports whether the bytes suffice.
func decodeAll(columns []column, b []byte, e *element) bool {
	for i := range columns {
		n := columns[i].width
		if len(b) < n {
			return false
		}
		columns[i].decode(b[:n], e)
		b = b[n:]
	}
	return true
}

// text returns an element as nft lists it.
func (s *set) text(e *element) string {
	text := columnsText(s.key, e)
	if e.comment != "" {
		text += fmt.Sprintf(" comment %q", e.comment)
	}
	switch {
	case s.verdict:
		text += " : goto " + e.goes.name()
	case len(s.value) > 0:
		text += " : " + columnsText(s.value, e)
	}
	return text
}

// keyText returns a key as nft lists it, or in hexadecimal if this proxy would write no such key.
func (s *set) keyText(key []byte) string {
	var e element
	if !decodeAll(s.key, key, &e) {
		return fmt.Sprintf("%x", key)
	}
	return columnsText(s.key, &e)
}

func columnsText(columns []column, e *element) string {
	var parts []string
	for _, c := range columns {
		parts = append(parts, c.text(e))
	}
	return strings.Join(parts, " . ")
}

// elements yields all elements of a content. Those of frontends come first, because packets meet them first.
func (s *schema) elements(c *content) iter.Seq2[*set, element] { return s.only(c, &content{}) }

// only yields the elements of a content that another one lacks.
func (s *schema) only(c, other *content) iter.Seq2[*set, element] {
	return func(yield func(*set, element) bool) {
		var e element // declared here because it is allocated on the heap
		for frontend, change := range cluster.Changes(other.frontends, c.frontends) {
			for _, set := range s.sets {
				if !change.Is || set.cells == nil || set.nodePort != frontend.IsNodePort() {
					continue
				}
				for i := range set.cells.count(change.After) {
					e = element{frontend: frontend}
					was := e
					if set.cells.get(change.After, i, &e) && (!change.Was || !set.cells.get(change.Before, i, &was) || was != e) && !yield(set, e) {
						return
					}
				}
			}
		}
		for _, set := range s.phases[phaseMembers].members {
			if !set.members.added(other, c, func(e element) bool { return yield(set, e) }) {
				return
			}
		}
	}
}
