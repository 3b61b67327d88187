package nftables

import (
	"bytes"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// The names of the sets and maps that rules look up. A set whose declaration changes in a later version needs a new
// name, because the old one stays in use until the new one is complete.
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
	setRejected      = "rejected"
	setRejectedPorts = "rejected-nodeports"
	setDropped       = "dropped"
	setDroppedPorts  = "dropped-nodeports"
	setClusterIPs    = "cluster-addresses"
	setNodeAddrs     = "node-addresses"
	setHairpins      = "hairpins"
	setOnLocalhost   = "localhost-nodeports"
)

// maxClients is how many clients an affinity map remembers. It bounds the memory that external clients can take (some
// 10 MB), and the time for searching the map for clients of an endpoint that left (below 1 s).
const maxClients = 65_536

// set is a row of the schema: a set or map, what its keys and values consist of, and where its elements come from.
// All that handles elements is a loop over the rows.
type set struct {
	dialect
	name string
	key  []column
	// value is a data map's. A verdict map has none; its elements go to chains.
	value   []column
	verdict bool
	// byType reports that the set is declared by types, because rules look it up by other expressions than its own.
	byType bool
	// counts reports that each element counts the packets that meet it.
	counts bool
	// phase orders the sets within a patch, and for reading.
	phase phase
	// cells is what an entry has in a set that is keyed by frontends; nodePort reports that these are node ports.
	cells    *cells
	nodePort bool
	// members is what a content has in any other set. An affinity map has neither: packets write it.
	members memberList
}

// phase is the order in which a patch fills sets; it clears them in the reverse order, so that an element is complete
// before anything leads to it. Sets are read in the reverse order too: the verdicts tell how many slots a frontend has.
type phase int

const (
	phaseMembers phase = iota
	phaseSlots
	phaseGuards
	phaseVerdicts
	phases
)

// phaseSets are the sets of one phase, by what they are keyed by.
type phaseSets struct{ members, frontends, nodePorts []*set }

// schema is the table of sets of one family. It does not change.
type schema struct {
	dialect
	sets   []*set
	phases [phases]phaseSets
}

// newSchema makes the table. Sets that change most come first: the kernel finds a set by walking a list.
func newSchema(family cluster.Family) *schema {
	d := dialectOf(family)
	frontend, endpoint := d.frontendColumns(), d.endpointColumns()
	nodePort := frontend[1:]
	slots := slotCells(func(e *entry) *[]netip.AddrPort { return &e.slots }, target.sharedSlots)
	locals := slotCells(func(e *entry) *[]netip.AddrPort { return &e.local }, target.ownSlots)
	goes := verdictCells(func(t *terms) *target { return &t.goes })
	from := verdictCells(func(t *terms) *target { return &t.from })
	remember := verdictCells(func(t *terms) *target { return &t.remember })
	rejected := flagCells(func(t *terms) *bool { return &t.rejected }, true)
	dropped := flagCells(func(t *terms) *bool { return &t.dropped }, true)
	onLocalhost := flagCells(func(t *terms) *bool { return &t.onLocalhost }, false)
	s := &schema{dialect: d, sets: []*set{
		{name: mapEndpoints, key: withSlot(frontend), value: endpoint, counts: true, phase: phaseSlots, cells: slots},
		{name: mapServices, key: frontend, verdict: true, counts: true, phase: phaseVerdicts, cells: goes},
		{name: mapNodePortEnds, key: withSlot(nodePort), value: endpoint, counts: true, phase: phaseSlots, cells: slots, nodePort: true},
		{name: mapNodePorts, key: nodePort, verdict: true, counts: true, phase: phaseVerdicts, cells: goes, nodePort: true},
		// Endpoints under an external Local policy.
		{name: mapLocal, key: withSlot(frontend), value: endpoint, counts: true, phase: phaseSlots, cells: locals},
		{name: mapNodePortLocal, key: withSlot(nodePort), value: endpoint, counts: true, phase: phaseSlots, cells: locals, nodePort: true},
		// Chains that check source ranges.
		{name: mapFirewall, key: frontend, verdict: true, counts: true, phase: phaseGuards, cells: from},
		// Endpoints that clients may stay with, and chains that remember clients.
		{name: setSticky, key: slices.Concat(endpoint, poolColumns()), phase: phaseMembers, members: poolMembers{}},
		{name: mapSticky, key: frontend, verdict: true, byType: true, phase: phaseVerdicts, cells: remember},
		{name: mapStickyPorts, key: nodePort, verdict: true, byType: true, phase: phaseVerdicts, cells: remember, nodePort: true},
		{name: setHairpins, key: []column{frontend[0], frontend[0]}, byType: true, phase: phaseMembers, members: addrMembers{d.family, hairpins}},
		// Frontends without an endpoint, and those with endpoints elsewhere only, under a Local policy.
		{name: setRejected, key: frontend, counts: true, phase: phaseVerdicts, cells: rejected},
		{name: setDropped, key: frontend, counts: true, phase: phaseVerdicts, cells: dropped},
		{name: setRejectedPorts, key: nodePort, counts: true, phase: phaseVerdicts, cells: rejected, nodePort: true},
		{name: setDroppedPorts, key: nodePort, counts: true, phase: phaseVerdicts, cells: dropped, nodePort: true},
		{name: setClusterIPs, key: frontend[:1], byType: true, phase: phaseMembers, members: addrMembers{d.family, clusterIPs}},
		{name: setNodeAddrs, key: frontend[:1], byType: true, phase: phaseMembers, members: addrMembers{d.family, nodeAddrs}},
		{name: setOnLocalhost, key: nodePort, phase: phaseVerdicts, cells: onLocalhost, nodePort: true},
	}}
	for _, set := range s.sets {
		set.dialect = d
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

// clients is the affinity map of a timeout: it leads from a client and a pool to an endpoint.
func (s *schema) clients(t timeout) *set {
	source := s.addrColumn("saddr", frontendAddr)
	return &set{dialect: s.dialect, name: t.name(), key: append([]column{source, protocolColumn()}, poolColumns()...), value: s.endpointColumns()}
}

// named finds a set; nil if there is none of the name.
func (s *schema) named(name string) *set {
	i := slices.IndexFunc(s.sets, func(s *set) bool { return s.name == name })
	if i < 0 {
		return nil
	}
	return s.sets[i]
}

// dynamic reports that packets write the set.
func (s *set) dynamic() bool { return s.cells == nil && s.members == nil }

// isMap reports that the set is a map.
func (s *set) isMap() bool { return s.verdict || len(s.value) > 0 }

// types is what the set is declared with: either types, or the expressions that typeof takes.
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

// lines is the set's declaration as nft lists it, the title first.
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
		return []string{title, types, fmt.Sprintf("size %d", maxClients), "flags dynamic,timeout"}
	case s.counts:
		return []string{title, types, "counter"}
	}
	return []string{title, types}
}

// title names the set with its kind.
func (s *set) title() string { return s.lines()[0] }

// space is memory that elements are encoded and decoded in, one after the other: there may be a quarter of a million.
type space struct {
	key, value []byte
	decoded    element
}

// encode makes the kernel's element, which is valid until the space is used again.
func (s *set) encode(e *element, in *space) nft.Element {
	in.key, in.value = in.key[:0], in.value[:0]
	for i := range s.key {
		in.key = s.key[i].encode(in.key, e)
	}
	for i := range s.value {
		in.value = s.value[i].encode(in.value, e)
	}
	encoded := nft.Element{Key: in.key, Value: in.value, Comment: e.comment}
	if s.verdict {
		encoded.Chain = e.goes.name()
	}
	return encoded
}

// decode reads an element of the kernel; the result is valid until the space is used again. It fails for elements that
// this proxy does not write.
func (s *set) decode(raw *nft.Element, in *space) (e *element, err error) {
	in.decoded = element{comment: raw.Comment}
	e = &in.decoded
	if s.nodePort {
		e.frontend.Addr = s.any
	}
	if s.verdict {
		if e.goes, err = parseTarget(raw.Chain); err != nil {
			return nil, err
		}
	}
	fits := decodeAll(s.key, raw.Key, e) && decodeAll(s.value, raw.Value, e)
	again := s.encode(e, in) // differs if a repeated column or padding does
	// No Service has the unspecified address, which stands for node ports.
	if !fits || !bytes.Equal(again.Key, raw.Key) || !bytes.Equal(again.Value, raw.Value) || s.cells != nil && e.frontend.IsNodePort() != s.nodePort {
		return nil, fmt.Errorf("%s: element %x : %x is not one of this proxy's", s.name, raw.Key, raw.Value)
	}
	return e, nil
}

// decodeAll reads columns, and reports whether the bytes suffice.
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

// text is an element as nft lists it.
func (s *set) text(e *element) string {
	join := func(columns []column) string {
		var parts []string
		for _, c := range columns {
			parts = append(parts, c.text(e))
		}
		return strings.Join(parts, " . ")
	}
	text := join(s.key)
	if e.comment != "" {
		text += fmt.Sprintf(" comment %q", e.comment)
	}
	switch {
	case s.verdict:
		text += " : goto " + e.goes.name()
	case len(s.value) > 0:
		text += " : " + join(s.value)
	}
	return text
}

// elements yields all elements that a content has, those of frontends first: they lead packets.
func (s *schema) elements(c *content) iter.Seq2[*set, element] {
	return func(yield func(*set, element) bool) {
		var e element // here because the compiler puts it on the heap
		for frontend, of := range c.frontends.All() {
			nodePort := frontend.IsNodePort()
			for _, set := range s.sets {
				if set.cells == nil || set.nodePort != nodePort {
					continue
				}
				for i := range set.cells.count(of) {
					e = element{frontend: frontend}
					if set.cells.get(of, i, &e) && !yield(set, e) {
						return
					}
				}
			}
		}
		for _, set := range s.phases[phaseMembers].members {
			if !set.members.added(&content{}, c, func(e element) bool { return yield(set, e) }) {
				return
			}
		}
	}
}

// unchanged reports whether an element that one content has is the same in a later one.
func (s *set) unchanged(of, later *content, e *element) bool {
	if s.members != nil {
		return s.members.has(later, e)
	}
	before, _ := of.frontends.Get(e.frontend)
	after, _ := later.frontends.Get(e.frontend)
	return before == after
}
