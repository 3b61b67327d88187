package nfttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
)

// program stands for nft: it translates its language into messages, as far as knftables writes it, and back.
type program struct {
	fake   *Fake
	socket nf.Socket
}

// Run is part of [nft.Program].
func (p program) Run(ctx context.Context, tx *nft.Transaction) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s := script{program: p, batch: nf.NewBatch(p.fake.name.Family, p.fake.name.Name, 0), sets: map[string]*declaration{}}
	for _, o := range tx.Operations() {
		line, err := p.line(o)
		if err != nil {
			return err
		}
		if err := s.add(line, o.Object); err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
	}
	err := nf.New(p.socket).Commit(ctx, s.batch)
	if refused, ok := errors.AsType[*nf.Refusal](err); ok {
		return &nft.ProgramError{Errno: refused.Errno, Cause: errors.New(refused.Error())}
	}
	return err
}

// line returns an operation as knftables writes it for nft, or the error of one that knftables does not accept.
func (p program) line(o nft.Operation) (string, error) {
	tx := knftables.NewFake(knftables.Family(p.fake.name.Family.String()), p.fake.name.Name).NewTransaction()
	o.Onto(tx)
	line := strings.TrimSuffix(tx.String(), "\n")
	if cause, failed := strings.CutPrefix(line, "# ERROR: "); failed { // knftables has no other way to ask for the error
		return "", errors.New(cause)
	}
	return line, nil
}

// commands are the messages of the operations that the fake understands, by their first two words. It does not know `destroy`, which nft before
// 1.0.8 lacks, nor flowtables without counters, which are those of knftables.
var commands = map[string]int{
	"add table": unix.NFT_MSG_NEWTABLE, "create table": unix.NFT_MSG_NEWTABLE, "flush table": unix.NFT_MSG_DELRULE, "delete table": unix.NFT_MSG_DELTABLE,
	"add chain": unix.NFT_MSG_NEWCHAIN, "create chain": unix.NFT_MSG_NEWCHAIN, "flush chain": unix.NFT_MSG_DELRULE, "delete chain": unix.NFT_MSG_DELCHAIN,
	"add rule": unix.NFT_MSG_NEWRULE, "insert rule": unix.NFT_MSG_NEWRULE,
	"add set": unix.NFT_MSG_NEWSET, "create set": unix.NFT_MSG_NEWSET, "flush set": unix.NFT_MSG_DELSETELEM, "delete set": unix.NFT_MSG_DELSET,
	"add map": unix.NFT_MSG_NEWSET, "create map": unix.NFT_MSG_NEWSET, "flush map": unix.NFT_MSG_DELSETELEM, "delete map": unix.NFT_MSG_DELSET,
	"add counter": unix.NFT_MSG_NEWOBJ, "create counter": unix.NFT_MSG_NEWOBJ, "delete counter": unix.NFT_MSG_DELOBJ,
	"add element": unix.NFT_MSG_NEWSETELEM, "create element": unix.NFT_MSG_NEWSETELEM, "delete element": unix.NFT_MSG_DELSETELEM,
	"delete flowtable": unix.NFT_MSG_DELFLOWTABLE,
}

// script is a transaction that is being translated.
type script struct {
	program
	batch *nf.Batch
	// sets are those that the transaction declares, and nil those that it deletes; emptied means that it deletes the table.
	sets    map[string]*declaration
	emptied bool
}

// add translates an operation.
func (s *script) add(line string, o knftables.Object) error {
	words := strings.SplitN(line, " ", 3)
	command, known := commands[words[0]+" "+words[1]]
	if !known {
		return errors.New("the fake does not understand this")
	}
	flags := map[string]uint16{"add": unix.NLM_F_CREATE, "insert": unix.NLM_F_CREATE, "create": unix.NLM_F_CREATE | unix.NLM_F_EXCL}[words[0]]
	if command == unix.NFT_MSG_NEWRULE && words[0] == "add" {
		flags |= unix.NLM_F_APPEND
	}
	name, attributes := "", []byte(nil)
	var err error
	switch o := o.(type) {
	case *knftables.Table:
		if command == unix.NFT_MSG_DELTABLE {
			s.sets, s.emptied = map[string]*declaration{}, true
		}
		attributes = appendComment(nil, nf.AttrTableUserdata, o.Comment)
	case *knftables.Chain:
		name = o.Name
		attributes, err = appendChain(nil, o)
	case *knftables.Rule:
		name = o.Chain
		attributes, err = s.rule(o)
	case *knftables.Set:
		name = o.Name
		attributes, err = s.set(name, command, &declaration{Type: o.Type, TypeOf: o.TypeOf, Flags: o.Flags, Size: o.Size})
	case *knftables.Map:
		name = o.Name
		attributes, err = s.set(name, command, &declaration{IsMap: true, Type: o.Type, TypeOf: o.TypeOf, Flags: o.Flags, Size: o.Size})
	case *knftables.Counter:
		name, attributes = o.Name, nf.Numbers{{unix.NFTA_OBJ_TYPE, unix.NFT_OBJECT_COUNTER}}.AppendTo(nil)
	case *knftables.Flowtable:
		name = o.Name
	case *knftables.Element:
		name = o.Set + o.Map
		attributes, err = s.element(o)
	}
	if _, isTable := o.(*knftables.Table); name == "" && !isTable {
		err = errors.New("the fake does not support handles")
	}
	s.batch.Object(command, flags, name, attributes)
	return err
}

// appendComment appends user data with a comment.
func appendComment(b []byte, typ uint16, comment *string) []byte {
	if comment == nil {
		return b
	}
	return nf.AppendComment(b, typ, *comment)
}

// appendChain appends the attributes of a chain. Unlike [nf.Chain] it may leave the policy of a base chain as it is.
func appendChain(b []byte, c *knftables.Chain) ([]byte, error) {
	b = appendComment(b, nf.AttrChainUserdata, c.Comment)
	if c.Type == nil {
		return b, nil
	}
	at := slices.Index([]knftables.BaseChainHook{knftables.PreroutingHook, knftables.InputHook, knftables.ForwardHook, knftables.OutputHook, knftables.PostroutingHook}, *c.Hook)
	priority, err := knftables.ParsePriority(knftables.IPv4Family, string(*c.Priority))
	if err != nil || at < 0 {
		return nil, errors.Join(err, fmt.Errorf("the fake has no hook %s", *c.Hook))
	}
	b = netlink.AppendString(b, unix.NFTA_CHAIN_TYPE, string(*c.Type))
	b, hook := netlink.BeginNest(b, unix.NFTA_CHAIN_HOOK)
	b = nf.Numbers{{unix.NFTA_HOOK_HOOKNUM, uint32(at)}, {unix.NFTA_HOOK_PRIORITY, uint32(int32(priority))}}.AppendTo(b)
	netlink.EndNest(b, hook)
	if c.Policy != nil {
		b = netlink.AppendUint32(b, unix.NFTA_CHAIN_POLICY, uint32(verdicts[string(*c.Policy)]))
	}
	return b, nil
}

// rule returns the attributes of a rule. It refuses the rules that nft 1.0.6 refuses: if it has to read from the kernel the type of a map that was
// declared with `typeof ... : ip daddr . th dport`, it takes the port for a condition of the rule. See README.md.
func (s *script) rule(r *knftables.Rule) ([]byte, error) {
	if r.Index != nil || r.Handle != nil {
		return nil, errors.New("the fake does not support handles")
	}
	for name := range strings.FieldsSeq(r.Rule) {
		name, used := strings.CutPrefix(name, "@")
		if !used || !strings.Contains(r.Rule, "dnat ") || s.sets[name] != nil {
			continue
		}
		if d := s.declaration(name); d != nil && d.typedByPort {
			return nil, fmt.Errorf("nft 1.0.6 says `conflicting protocols specified`: map %s was declared earlier, with typeof and a port among its values: use AddRule", name)
		}
	}
	b := netlink.AppendBytes(nil, unix.NFTA_RULE_EXPRESSIONS|unix.NLA_F_NESTED, expressionsOf(r.Rule))
	return appendComment(b, unix.NFTA_RULE_USERDATA, r.Comment), nil
}

// set returns the attributes of a declaration.
func (s *script) set(name string, command int, d *declaration) ([]byte, error) {
	switch command {
	case unix.NFT_MSG_NEWSET:
		if err := d.parse(); err != nil {
			return nil, err
		}
		if s.declaration(name) == nil {
			s.sets[name] = d
		}
		return d.appendTo(nil), nil
	case unix.NFT_MSG_DELSET:
		s.sets[name] = nil
	}
	return nil, nil
}

// declaration returns the declaration of a set; nil if there is none.
func (s *script) declaration(name string) (d *declaration) {
	found, here := s.sets[name]
	if here || s.emptied {
		return found
	}
	_ = nf.New(s.socket).Get(nf.Query{Command: unix.NFT_MSG_GETSET, Family: s.fake.name.Family, Table: s.fake.name.Name, Name: name}, func(m netlink.Message) error {
		d = declarationOf(m)
		return nil
	})
	return d
}

// element returns the attributes of a list of one element.
func (s *script) element(e *knftables.Element) (b []byte, err error) {
	set := s.declaration(e.Set + e.Map)
	key := []byte(strings.Join(e.Key, " . "))
	if set != nil && !set.has(knftables.IntervalFlag) {
		key, err = parseFields(set.key, e.Key)
	}
	var data []byte
	switch {
	case err != nil:
		return nil, err
	case set == nil || len(e.Value) == 0:
	case set.verdicts:
		word, chain, _ := strings.Cut(e.Value[0], " ")
		data = nf.AppendVerdict(nil, verdicts[word], chain)
	default:
		if data, err = parseFields(set.value, e.Value); err != nil {
			return nil, err
		}
		data = netlink.AppendBytes(nil, unix.NFTA_DATA_VALUE, data)
	}
	b, list := netlink.BeginNest(nil, unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	b, elem := netlink.BeginNest(b, unix.NFTA_LIST_ELEM)
	b = nf.AppendData(b, unix.NFTA_SET_ELEM_KEY, key)
	if data != nil {
		b = netlink.AppendBytes(b, unix.NFTA_SET_ELEM_DATA|unix.NLA_F_NESTED, data)
	}
	b = appendComment(b, unix.NFTA_SET_ELEM_USERDATA, e.Comment)
	netlink.EndNest(b, elem)
	netlink.EndNest(b, list)
	return b, nil
}

var verdicts = map[string]nf.Verdict{"accept": nf.Accept, "drop": nf.Drop, "return": nf.Return, "goto": nf.Goto, "jump": nf.Jump}
