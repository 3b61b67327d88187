package nftest

import (
	"bytes"
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// commit makes a batch's changes, or none. at is the number of the message at fault, acknowledged that of the last one. If the table
// as a whole would be invalid, it finds the message at fault as the kernel does.
func (k *Kernel) commit(data []byte, program string, process int) (at, acknowledged uint32, err error) {
	at, acknowledged, err = k.transact(data, false)
	if err != nil {
		at, _, err = k.transact(data, true)
		return at, 0, err
	}
	if len(k.state.undo) > 0 {
		k.end(program, process)
	}
	k.state = transaction{}
	return at, acknowledged, nil
}

// transact makes the changes, and undoes them if one fails.
func (k *Kernel) transact(data []byte, eachStep bool) (at, last uint32, err error) {
	k.state = transaction{}
	for m := netlink.ReadMessages(data); m.Next() && err == nil; {
		if nf.CommandOf(m.Message) < 0 {
			continue
		}
		if m.Flags&unix.NLM_F_ACK != 0 {
			last = m.Seq
		}
		at = m.Seq
		err = k.message(m.Message, eachStep)
	}
	if err == nil && k.state.jumps {
		err = k.validate()
	}
	if err != nil {
		for _, undo := range slices.Backward(k.state.undo) {
			undo()
		}
	}
	return at, last, err
}

// message makes the change of one message.
func (k *Kernel) message(m netlink.Message, eachStep bool) error {
	k.state.name = nf.TableName{Family: nf.Family(m.Family), Name: m.AttrString(unix.NFTA_TABLE_NAME)}
	k.state.table = k.tables[k.state.name]
	command := nf.CommandOf(m)
	if k.state.table == nil && command != unix.NFT_MSG_NEWTABLE {
		return refuse(unix.ENOENT, "no table %s %s", k.state.name.Family, k.state.name.Name)
	}
	step := func(err error) error {
		if err == nil && eachStep && command != unix.NFT_MSG_DELTABLE {
			err = k.validate()
		}
		return err
	}
	if command != unix.NFT_MSG_NEWSETELEM && command != unix.NFT_MSG_DELSETELEM {
		return step(k.object(m))
	}
	s, err := k.set(m.AttrString(unix.NFTA_SET_ELEM_LIST_SET))
	if err != nil {
		return err
	}
	list := m.Attr(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	if list == nil && command == unix.NFT_MSG_DELSETELEM {
		return k.flushSet(s.name, true)
	}
	for a := netlink.ReadAttrs(list); a.Next(); {
		if err := step(k.element(s, a, command, m.Flags)); err != nil {
			return err
		}
	}
	return nil
}

// object makes the change of a message about a table, or what it holds except elements.
func (k *Kernel) object(m netlink.Message) error {
	exclusive := m.Flags&unix.NLM_F_EXCL != 0
	switch nf.CommandOf(m) {
	case unix.NFT_MSG_NEWTABLE:
		return k.addTable(m.Attrs().FindUint32(unix.NFTA_TABLE_FLAGS), bytes.Clone(m.Attr(nf.AttrTableUserdata)), exclusive)
	case unix.NFT_MSG_DELTABLE:
		return k.deleteTable()
	case unix.NFT_MSG_NEWCHAIN:
		return k.addChain(nf.DecodeChain(m), m.Attr(unix.NFTA_CHAIN_POLICY) != nil, exclusive)
	case unix.NFT_MSG_DELCHAIN:
		return k.deleteChain(m.AttrString(unix.NFTA_CHAIN_NAME), m.Flags&unix.NLM_F_NONREC != 0)
	case unix.NFT_MSG_NEWRULE:
		expressions := bytes.Clone(m.Attr(unix.NFTA_RULE_EXPRESSIONS))
		r := &rule{expressions: expressions, userdata: bytes.Clone(m.Attr(unix.NFTA_RULE_USERDATA)), uses: usesOf(expressions)}
		return k.addRule(m.AttrString(unix.NFTA_RULE_CHAIN), r, m.Flags&unix.NLM_F_APPEND == 0)
	case unix.NFT_MSG_DELRULE:
		return k.deleteRules(m)
	case unix.NFT_MSG_NEWSET:
		return k.addSet(newSet(m), exclusive)
	case unix.NFT_MSG_DELSET:
		return k.deleteSet(m.AttrString(unix.NFTA_SET_NAME))
	case unix.NFT_MSG_NEWOBJ, unix.NFT_MSG_DELOBJ:
		return k.changeObject(m.AttrString(unix.NFTA_OBJ_NAME), m.Attrs().FindUint32(unix.NFTA_OBJ_TYPE), nf.CommandOf(m) == unix.NFT_MSG_NEWOBJ, exclusive)
	case unix.NFT_MSG_NEWFLOWTABLE:
		return k.addFlowtable(nf.DecodeFlowtable(m))
	case unix.NFT_MSG_DELFLOWTABLE:
		return k.deleteFlowtable(nf.DecodeFlowtable(m))
	}
	return refuse(unix.EINVAL, "unknown message")
}

// deleteRules deletes the rules of the table, those of a chain, or one.
func (k *Kernel) deleteRules(m netlink.Message) error {
	if m.Attr(unix.NFTA_RULE_CHAIN) != nil {
		handle := uint64(0)
		if v := m.Attr(unix.NFTA_RULE_HANDLE); len(v) == 8 {
			handle = binary.BigEndian.Uint64(v)
		}
		return k.flushChain(m.AttrString(unix.NFTA_RULE_CHAIN), handle)
	}
	for _, name := range sorted(k.state.table.chains) {
		if err := k.flushChain(name, 0); err != nil {
			return err
		}
	}
	return nil
}

// newSet reads a declaration.
func newSet(m netlink.Message) *set {
	a := m.Attrs()
	s := &set{
		name: m.AttrString(unix.NFTA_SET_NAME), flags: a.FindUint32(unix.NFTA_SET_FLAGS),
		keyLen: a.FindUint32(unix.NFTA_SET_KEY_LEN), dataLen: a.FindUint32(unix.NFTA_SET_DATA_LEN),
		verdicts: a.FindUint32(unix.NFTA_SET_DATA_TYPE) == unix.NFT_DATA_VERDICT, counts: a.Find(nf.AttrSetExpr) != nil,
		size:     netlink.ReadAttrs(a.Find(unix.NFTA_SET_DESC)).FindUint32(unix.NFTA_SET_DESC_SIZE),
		elements: map[string]element{}, goes: map[string]int{},
	}
	for a.Next() {
		if a.Type != unix.NFTA_SET_TABLE && a.Type != unix.NFTA_SET_NAME {
			s.declaration = netlink.AppendBytes(s.declaration, a.Type, a.Data)
		}
	}
	return s
}

// element adds or deletes an element.
func (k *Kernel) element(s *set, a netlink.Attrs, command int, flags uint16) error {
	key, data := keyOf(a.Data), netlink.Attr(a.Data, unix.NFTA_SET_ELEM_DATA)
	verdict := netlink.Attr(data, unix.NFTA_DATA_VERDICT)
	e := element{data: bytes.Clone(data), userdata: bytes.Clone(netlink.Attr(a.Data, unix.NFTA_SET_ELEM_USERDATA)),
		chain: netlink.String(netlink.Attr(verdict, unix.NFTA_VERDICT_CHAIN))}
	if !s.has(unix.NFT_SET_INTERVAL) && len(key) != int(s.keyLen) { // those of an interval set are text here
		return refuse(unix.EINVAL, "the key has %d bytes; the set's has %d", len(key), s.keyLen)
	}
	if command == unix.NFT_MSG_DELSETELEM {
		return k.deleteElement(s, key)
	}
	if err := k.mayAdd("set "+s.name, []byte(key)); err != nil {
		return err
	}
	if value := netlink.Attr(data, unix.NFTA_DATA_VALUE); s.verdicts != (verdict != nil) || !s.verdicts && len(value) != int(s.dataLen) {
		return refuse(unix.EINVAL, "the value does not fit the map")
	}
	return k.addElement(s, key, e, flags&unix.NLM_F_EXCL != 0)
}

// uses is what a rule refers to.
type uses struct {
	chains, sets, objects, flowtables []string
	// maps are those of sets whose values are verdicts, writes the sets that packets write, timed those in which they set a timeout.
	maps, writes, timed []string
	// hooks are those of a chain of type nat that the rule can be reached from; nil is all of any type.
	hooks []uint32
	// forwards means that the rule can be reached from hook forward only.
	forwards bool
	// table is the name of the only table that may have the rule, because of its target of x_tables; "" is any.
	table string
}

// tableOf are the tables of targets of x_tables. The kernel compares the names when a rule is added (xt_check_target), whatever leads to it.
var tableOf = map[string]string{"DNAT": "nat", "MASQUERADE": "nat", "REJECT": "filter"}

// usesOf reads expressions.
func usesOf(expressions []byte) (u uses) {
	for e := netlink.ReadAttrs(expressions); e.Next(); {
		name, attrs := nf.ReadExpr(e.Data)
		text := func(typ uint16) string { return netlink.String(attrs.Find(typ)) }
		switch string(name) {
		case "immediate":
			verdict := netlink.Attr(attrs.Find(unix.NFTA_IMMEDIATE_DATA), unix.NFTA_DATA_VERDICT)
			if chain := netlink.Attr(verdict, unix.NFTA_VERDICT_CHAIN); chain != nil {
				u.chains = append(u.chains, netlink.String(chain))
			}
		case "lookup":
			u.sets = append(u.sets, text(unix.NFTA_LOOKUP_SET))
			if attrs.Find(unix.NFTA_LOOKUP_DREG) != nil && attrs.FindUint32(unix.NFTA_LOOKUP_DREG) == unix.NFT_REG_VERDICT {
				u.maps = append(u.maps, text(unix.NFTA_LOOKUP_SET))
			}
		case "dynset":
			u.writes = append(u.writes, text(unix.NFTA_DYNSET_SET_NAME))
			if attrs.Find(unix.NFTA_DYNSET_TIMEOUT) != nil {
				u.timed = append(u.timed, text(unix.NFTA_DYNSET_SET_NAME))
			}
		case "objref":
			u.objects = append(u.objects, text(unix.NFTA_OBJREF_IMM_NAME))
		case "flow_offload":
			u.flowtables, u.forwards = append(u.flowtables, text(1)), true
		case "target": // of x_tables
			target := text(1) // NFTA_TARGET_NAME
			u.table = tableOf[target]
			switch target {
			case "DNAT":
				u.hooks = []uint32{unix.NF_INET_PRE_ROUTING, unix.NF_INET_LOCAL_OUT}
			case "MASQUERADE":
				u.hooks = []uint32{unix.NF_INET_POST_ROUTING}
			}
		case "redir":
			u.hooks = []uint32{unix.NF_INET_PRE_ROUTING, unix.NF_INET_LOCAL_OUT}
		case "masq":
			u.hooks = []uint32{unix.NF_INET_POST_ROUTING}
		case "nat":
			u.hooks = []uint32{unix.NF_INET_PRE_ROUTING, unix.NF_INET_LOCAL_OUT}
			if attrs.FindUint32(unix.NFTA_NAT_TYPE) == unix.NFT_NAT_SNAT {
				u.hooks = []uint32{unix.NF_INET_POST_ROUTING, unix.NF_INET_LOCAL_IN}
			}
		}
	}
	return u
}

// maxJumps is how deep chains may jump: NFT_JUMP_STACK_SIZE.
const maxJumps = 16

// validate walks the chains from the base chains, as the kernel does when something was added that goes to a chain.
func (k *Kernel) validate() error {
	t := k.tables[k.state.name]
	if t == nil {
		return nil
	}
	for name, c := range t.chains {
		if c.Type != "" {
			w := walk{table: t, base: c.Chain, above: map[string]bool{}, depths: map[string]int{}}
			if err := w.chain(name, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// walk visits the chains that packets can reach from a base chain.
type walk struct {
	table  *table
	base   nf.Chain
	above  map[string]bool
	depths map[string]int // at which chains were visited, plus 1
}

func (w *walk) chain(name string, depth int) error {
	if w.above[name] || depth >= maxJumps {
		return refuse(unix.EMLINK, "chains from %s form a loop, or go too deep", name)
	}
	if w.depths[name] > depth {
		return nil
	}
	w.depths[name] = depth + 1
	w.above[name] = true
	defer delete(w.above, name)
	for _, r := range w.table.chains[name].rules {
		if r.uses.hooks != nil && (w.base.Type != "nat" || !slices.Contains(r.uses.hooks, w.base.Hook)) {
			return refuse(unix.EOPNOTSUPP, "NAT in chain %s cannot be reached from a %s chain at hook %d", name, w.base.Type, w.base.Hook)
		}
		if r.uses.forwards && w.base.Hook != unix.NF_INET_FORWARD {
			return refuse(unix.EOPNOTSUPP, "flow add in chain %s cannot be reached from hook %d", name, w.base.Hook)
		}
		targets := slices.Clone(r.uses.chains)
		for _, set := range r.uses.maps {
			for chain, n := range w.table.sets[set].goes {
				if n > 0 {
					targets = append(targets, chain)
				}
			}
		}
		for _, target := range targets {
			if err := w.chain(target, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}
