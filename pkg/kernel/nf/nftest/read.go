package nftest

import (
	"encoding/binary"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// read answers a request: an object, or with NLM_F_DUMP all of a kind.
func (k *Kernel) read(m netlink.Message) (b []byte, _ error) {
	if nf.CommandOf(m) == unix.NFT_MSG_GETGEN {
		return k.appendGeneration(nil, "", 0), nil
	}
	dump := m.Flags&unix.NLM_F_DUMP != 0
	of := nf.TableName{Family: nf.Family(m.Family), Name: m.AttrString(unix.NFTA_TABLE_NAME)}
	t := k.tables[of]
	if t == nil && (!dump || nf.CommandOf(m) == unix.NFT_MSG_GETSET || nf.CommandOf(m) == unix.NFT_MSG_GETSETELEM) {
		return nil, unix.ENOENT
	}
	switch nf.CommandOf(m) {
	case unix.NFT_MSG_GETTABLE:
		return t.appendTo(nil, of), nil
	case unix.NFT_MSG_GETCHAIN:
		return k.chains(m, of, dump)
	case unix.NFT_MSG_GETRULE:
		return k.rules(m, of, dump)
	case unix.NFT_MSG_GETSET:
		return t.readSets(m, of, dump)
	case unix.NFT_MSG_GETSETELEM:
		return t.readElements(m, of, dump)
	case unix.NFT_MSG_GETOBJ:
		if t != nil {
			for _, name := range sorted(t.objects) {
				b = t.objects[name].appendTo(b, of, name)
			}
		}
		return b, nil
	case unix.NFT_MSG_GETFLOWTABLE:
		if t != nil {
			for _, name := range sorted(t.flowtables) {
				b = t.flowtables[name].appendTo(b, of)
			}
		}
		return b, nil
	}
	return nil, unix.EOPNOTSUPP
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// named returns the tables that a dump is about.
func (k *Kernel) named(of nf.TableName) (names []nf.TableName) {
	for name := range k.tables {
		if (of.Family == 0 || of.Family == name.Family) && (of.Name == "" || of.Name == name.Name) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b nf.TableName) int { return int(k.tables[a].number) - int(k.tables[b].number) })
	return names
}

func (k *Kernel) chains(m netlink.Message, of nf.TableName, dump bool) (b []byte, _ error) {
	if !dump {
		name := m.AttrString(unix.NFTA_CHAIN_NAME)
		c := k.tables[of].chains[name]
		if c == nil {
			return nil, unix.ENOENT
		}
		return c.appendTo(nil, of), nil
	}
	for _, name := range k.named(nf.TableName{Family: of.Family}) { // of all tables, as the kernel does
		for _, chain := range sorted(k.tables[name].chains) {
			b = k.tables[name].chains[chain].appendTo(b, name)
		}
	}
	return b, nil
}

func (k *Kernel) rules(m netlink.Message, of nf.TableName, dump bool) (b []byte, _ error) {
	want := m.AttrString(unix.NFTA_RULE_CHAIN)
	handle := m.Attr(unix.NFTA_RULE_HANDLE)
	for _, name := range k.named(of) {
		chains := []string{want}
		if want == "" {
			chains = sorted(k.tables[name].chains)
		}
		for _, chain := range chains {
			c := k.tables[name].chains[chain]
			if c == nil {
				continue
			}
			for _, r := range c.rules {
				if dump || len(handle) == 8 && binary.BigEndian.Uint64(handle) == r.handle {
					b = r.appendTo(b, name, chain)
				}
			}
		}
	}
	if !dump && b == nil {
		return nil, unix.ENOENT
	}
	return b, nil
}

func (t *table) readSets(m netlink.Message, of nf.TableName, dump bool) (b []byte, _ error) {
	if !dump {
		name := m.AttrString(unix.NFTA_SET_NAME)
		if t.sets[name] == nil {
			return nil, unix.ENOENT
		}
		return t.sets[name].appendTo(nil, of), nil
	}
	for _, name := range sorted(t.sets) {
		b = t.sets[name].appendTo(b, of)
	}
	return b, nil
}

// perMessage is how many elements a message of a dump has.
const perMessage = 100

func (t *table) readElements(m netlink.Message, of nf.TableName, dump bool) (b []byte, _ error) {
	s := t.sets[m.AttrString(unix.NFTA_SET_ELEM_LIST_SET)]
	if s == nil {
		return nil, unix.ENOENT
	}
	var keys []string
	var failed error
	size := perMessage
	if dump {
		keys = sorted(s.elements)
	} else {
		size = 1
		for a := netlink.ReadAttrs(m.Attr(unix.NFTA_SET_ELEM_LIST_ELEMENTS)); a.Next(); {
			key := keyOf(a.Data)
			switch _, there := s.elements[key]; {
			case uint32(len(key)) != s.keyLen:
				failed = unix.EINVAL
			case !there:
				failed = unix.ENOENT
			}
			if failed != nil {
				break
			}
			keys = append(keys, key)
		}
	}
	for some := range slices.Chunk(keys, size) {
		elements, list := netlink.BeginNest(nil, unix.NFTA_SET_ELEM_LIST_ELEMENTS)
		for _, key := range some {
			elements = appendElement(elements, key, func(b []byte) []byte { return s.elements[key].appendTo(b, s.counts) })
		}
		netlink.EndNest(elements, list)
		b = appendObject(b, unix.NFT_MSG_NEWSETELEM, of, s.name, elements)
	}
	return b, failed
}

// appendElements appends a list of one element.
func appendElements(b []byte, key string, more func([]byte) []byte) []byte {
	b, list := netlink.BeginNest(b, unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	b = appendElement(b, key, more)
	netlink.EndNest(b, list)
	return b
}

func appendElement(b []byte, key string, more func([]byte) []byte) []byte {
	b, elem := netlink.BeginNest(b, unix.NFTA_LIST_ELEM)
	b = nf.AppendData(b, unix.NFTA_SET_ELEM_KEY, []byte(key))
	if more != nil {
		b = more(b)
	}
	netlink.EndNest(b, elem)
	return b
}

func keyOf(element []byte) string { return string(nf.KeyOf(element)) }

func (t *table) appendTo(b []byte, of nf.TableName) []byte {
	flags := netlink.AppendUint32(nil, unix.NFTA_TABLE_FLAGS, 0)
	return appendObject(b, unix.NFT_MSG_NEWTABLE, of, "", appendBytes(flags, nf.AttrTableUserdata, t.userdata))
}

// appendBytes appends an attribute that is not empty.
func appendBytes(b []byte, typ uint16, v []byte) []byte {
	if len(v) == 0 {
		return b
	}
	return netlink.AppendBytes(b, typ, v)
}

func (c *chain) appendTo(b []byte, of nf.TableName) []byte {
	return appendObject(b, unix.NFT_MSG_NEWCHAIN, of, c.Name, c.AppendTo(nil))
}

func (f *flowtable) appendTo(b []byte, of nf.TableName) []byte {
	return appendObject(b, unix.NFT_MSG_NEWFLOWTABLE, of, f.Name, f.AppendTo(nil))
}

func (r *rule) appendTo(b []byte, of nf.TableName, chain string) []byte {
	attributes := netlink.AppendBytes(nil, unix.NFTA_RULE_HANDLE, binary.BigEndian.AppendUint64(nil, r.handle))
	attributes = netlink.AppendBytes(attributes, unix.NFTA_RULE_EXPRESSIONS|unix.NLA_F_NESTED, r.expressions)
	return appendObject(b, unix.NFT_MSG_NEWRULE, of, chain, appendBytes(attributes, unix.NFTA_RULE_USERDATA, r.userdata))
}

func (s *set) appendTo(b []byte, of nf.TableName) []byte {
	count := netlink.AppendUint32(nil, nf.AttrSetCount, uint32(len(s.elements)))
	return appendObject(b, unix.NFT_MSG_NEWSET, of, s.name, slices.Concat(s.declaration, count))
}

func (o *object) appendTo(b []byte, of nf.TableName, name string) []byte {
	attributes, data := netlink.BeginNest(netlink.AppendUint32(nil, unix.NFTA_OBJ_TYPE, o.typ), unix.NFTA_OBJ_DATA)
	attributes = appendCounts(attributes, 0, 0)
	netlink.EndNest(attributes, data)
	return appendObject(b, unix.NFT_MSG_NEWOBJ, of, name, attributes)
}

func (e element) appendTo(b []byte, counts bool) []byte {
	b = appendBytes(b, unix.NFTA_SET_ELEM_DATA|unix.NLA_F_NESTED, e.data)
	b = appendBytes(b, unix.NFTA_SET_ELEM_USERDATA, e.userdata)
	if counts {
		var nest, data int
		b, nest = netlink.BeginNest(b, unix.NFTA_SET_ELEM_EXPR)
		b = netlink.AppendString(b, unix.NFTA_EXPR_NAME, "counter")
		b, data = netlink.BeginNest(b, unix.NFTA_EXPR_DATA)
		b = appendCounts(b, e.packets, e.bytes)
		netlink.EndNest(b, data)
		netlink.EndNest(b, nest)
	}
	return b
}

func appendCounts(b []byte, packets, octets uint64) []byte {
	b = netlink.AppendBytes(b, unix.NFTA_COUNTER_BYTES, binary.BigEndian.AppendUint64(nil, octets))
	return netlink.AppendBytes(b, unix.NFTA_COUNTER_PACKETS, binary.BigEndian.AppendUint64(nil, packets))
}

// written is the name of the expression that holds a rule as a program was given it. It has one attribute.
const written = "text"

// AppendText appends an expression with the text of a rule, by which a stand-in for a program lists it.
func AppendText(b []byte, text string) []byte {
	b, open := nf.BeginExpr(b, written)
	b = netlink.AppendString(b, 1, text)
	open.End(b)
	return b
}

// TextOf returns the text in an expression; ok is false if it has none.
func TextOf(expression []byte) (text string, ok bool) {
	name, attrs := nf.ReadExpr(expression)
	if string(name) != written {
		return "", false
	}
	return netlink.String(attrs.Find(1)), true
}
