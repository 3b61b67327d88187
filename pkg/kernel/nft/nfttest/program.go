package nfttest

import (
	"context"
	"errors"
	"fmt"
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
	commands, err := p.parse(tx)
	if err != nil {
		return err
	}
	s := script{program: p, sets: map[string]*declaration{}}
	s.frame(unix.NFNL_MSG_BATCH_BEGIN)
	for _, c := range commands {
		if err := s.command(c); err != nil {
			return err
		}
	}
	s.frame(unix.NFNL_MSG_BATCH_END)
	return p.socket.Exchange(s.b, func(m netlink.Message) error {
		r := m.Result()
		if r.Errno == 0 {
			return nil
		}
		cause := r.Err()
		if r.Seq > 0 { // not the beginning
			cause = fmt.Errorf("%s: %w", commands[r.Seq-1], cause)
		}
		return &nft.ProgramError{Errno: r.Errno, Cause: cause}
	})
}

// command is one line of a transaction, as knftables writes it for nft.
type command struct {
	verb, kind string
	family     string
	table      string
	rest       string // what follows the table
}

func (c command) String() string {
	return strings.Join([]string{c.verb, c.kind, c.family, c.table, c.rest}, " ")
}

func (c command) unknown() error { return fmt.Errorf("the fake does not understand %q", c.String()) }

// parse splits a transaction into its commands, or returns the error of an operation that was added to it.
func (p program) parse(tx *nft.Transaction) ([]command, error) {
	const failed = "# ERROR: " // knftables has no other way to ask for the error
	text := tx.Onto(knftables.NewFake(p.fake.family, p.fake.name.Name).NewTransaction()).String()
	if cause, found := strings.CutPrefix(text[strings.LastIndexByte(text, '\n')+1:], failed); found {
		return nil, errors.New(cause)
	}
	var out []command
	for line := range strings.Lines(text) {
		words := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 5)
		if len(words) < 4 {
			return nil, fmt.Errorf("the fake does not understand %q", line)
		}
		c := command{verb: words[0], kind: words[1], family: words[2], table: words[3]}
		if len(words) == 5 {
			c.rest = words[4]
		}
		out = append(out, c)
	}
	return out, nil
}

// script is a transaction that is being translated.
type script struct {
	program
	b   []byte
	seq uint32
	// sets are those that the transaction declares, and nil those that it deletes; emptied means that it deletes the table.
	sets    map[string]*declaration
	emptied bool
}

func (s *script) frame(typ uint16) {
	start := len(s.b)
	s.b = netlink.AppendMessage(s.b, netlink.Header{Type: typ, Flags: unix.NLM_F_REQUEST, Resource: unix.NFNL_SUBSYS_NFTABLES})
	s.end(start)
}

func (s *script) end(start int) {
	netlink.EndMessage(s.b, start)
	netlink.SetSeq(s.b, start, s.seq)
	s.seq++
}

// message appends a message, with the name of its object unless that is "".
func (s *script) message(command int, flags uint16, name string, attrs func([]byte) []byte) {
	start := len(s.b)
	s.b = netlink.AppendMessage(s.b, netlink.Header{Type: uint16(unix.NFNL_SUBSYS_NFTABLES<<8 | command), Flags: unix.NLM_F_REQUEST | unix.NLM_F_ACK | flags, Family: byte(s.fake.name.Family)})
	s.b = netlink.AppendString(s.b, unix.NFTA_TABLE_NAME, s.fake.name.Name)
	switch {
	case command == unix.NFT_MSG_NEWCHAIN, command == unix.NFT_MSG_DELCHAIN:
		s.b = netlink.AppendString(s.b, unix.NFTA_CHAIN_NAME, name)
	case name != "":
		s.b = netlink.AppendString(s.b, unix.NFTA_SET_NAME, name) // the attribute of all other kinds
	}
	if attrs != nil {
		s.b = attrs(s.b)
	}
	s.end(start)
}

// command translates a command.
func (s *script) command(c command) error {
	if c.family != string(s.fake.family) || c.table != s.fake.name.Name {
		return fmt.Errorf("%q is about another table", c.String())
	}
	if c.verb == "destroy" {
		return fmt.Errorf("%q: nft before 1.0.8 has no `destroy`: use Add and Delete", c.String())
	}
	name, rest, _ := strings.Cut(c.rest, " ")
	if name == "handle" || strings.HasPrefix(rest, "handle ") || strings.HasPrefix(rest, "index ") {
		return fmt.Errorf("%q: the fake does not support handles", c.String())
	}
	flags := map[string]uint16{"add": unix.NLM_F_CREATE | unix.NLM_F_APPEND, "insert": unix.NLM_F_CREATE, "create": unix.NLM_F_CREATE | unix.NLM_F_EXCL}[c.verb]
	var err error
	switch c.kind {
	case "table":
		err = s.onTable(c, flags)
	case "chain":
		err = s.onChain(c, flags, name, rest)
	case "rule":
		err = s.rule(c, flags, name, rest)
	case "set", "map":
		err = s.set(c, flags, name, rest)
	case "counter":
		counter := func(b []byte) []byte { return nf.Numbers{{unix.NFTA_OBJ_TYPE, unix.NFT_OBJECT_COUNTER}}.AppendTo(b) }
		switch c.verb {
		case "add", "create":
			s.message(unix.NFT_MSG_NEWOBJ, flags, name, counter)
		case "delete":
			s.message(unix.NFT_MSG_DELOBJ, flags, name, counter)
		default:
			err = c.unknown()
		}
	case "flowtable":
		if c.verb != "delete" {
			return fmt.Errorf("%q: knftables has no flowtables with counters: use Batch.EnsureFlowtable", c.String())
		}
		s.message(unix.NFT_MSG_DELFLOWTABLE, 0, name, nil)
	case "element":
		err = s.element(c, flags, name, rest)
	default:
		err = c.unknown()
	}
	return err
}

// comment returns user data with a comment.
func comment(text string) []byte {
	if text == "" {
		return nil
	}
	text = nft.CutComment(text)
	return append(append([]byte{0, byte(len(text) + 1)}, text...), 0)
}

// appendUserdata appends an attribute unless it is empty.
func appendUserdata(b []byte, typ uint16, v []byte) []byte {
	if len(v) == 0 {
		return b
	}
	return netlink.AppendBytes(b, typ, v)
}

func (s *script) onTable(c command, flags uint16) error {
	switch c.verb {
	case "add", "create":
		s.message(unix.NFT_MSG_NEWTABLE, flags, "", func(b []byte) []byte {
			return appendUserdata(b, tableUserdata, comment(parseProperties(c.rest).comment))
		})
	case "flush":
		s.message(unix.NFT_MSG_DELRULE, 0, "", nil)
	case "delete":
		s.message(unix.NFT_MSG_DELTABLE, 0, "", nil)
		s.sets, s.emptied = map[string]*declaration{}, true
	default:
		return c.unknown()
	}
	return nil
}

func (s *script) onChain(c command, flags uint16, name, rest string) error {
	switch c.verb {
	case "add", "create":
		p := parseProperties(rest)
		base, err := p.base()
		if err != nil {
			return err
		}
		s.message(unix.NFT_MSG_NEWCHAIN, flags, name, func(b []byte) []byte { return appendUserdata(append(b, base...), chainUserdata, comment(p.comment)) })
	case "flush":
		s.message(unix.NFT_MSG_DELRULE, 0, name, nil)
	case "delete":
		s.message(unix.NFT_MSG_DELCHAIN, 0, name, nil)
	default:
		return c.unknown()
	}
	return nil
}

// rule translates a rule. It refuses the rules that nft 1.0.6 refuses: if it has to read from the kernel the type of a map that was
// declared with `typeof ... : ip daddr . th dport`, it takes the port for a condition of the rule. See README.md.
func (s *script) rule(c command, flags uint16, chain, text string) error {
	if c.verb != "add" && c.verb != "insert" {
		return c.unknown()
	}
	text, words := cutQuoted(text)
	for name := range strings.FieldsSeq(text) {
		name, used := strings.CutPrefix(name, "@")
		if used && strings.Contains(text, "dnat ") && s.sets[name] == nil && s.known(name).typedByPort {
			return fmt.Errorf("%q: nft 1.0.6 says `conflicting protocols specified`: map %s was declared earlier, with typeof and a port among its values: use Batch.AddRule", text, name)
		}
	}
	s.message(unix.NFT_MSG_NEWRULE, flags, chain, func(b []byte) []byte {
		b = netlink.AppendBytes(b, unix.NFTA_RULE_EXPRESSIONS|unix.NLA_F_NESTED, expressionsOf(text))
		return appendUserdata(b, unix.NFTA_RULE_USERDATA, comment(words))
	})
	return nil
}

func (s *script) set(c command, flags uint16, name, rest string) error {
	switch c.verb {
	case "add", "create":
		set, err := parseProperties(rest).set(c.kind == "map")
		if err != nil {
			return fmt.Errorf("%s: %w", c.String(), err)
		}
		if s.known(name).text == "" {
			s.sets[name] = set
		}
		s.message(unix.NFT_MSG_NEWSET, flags, name, set.appendTo)
	case "flush":
		s.message(unix.NFT_MSG_DELSETELEM, 0, name, nil)
	case "delete":
		s.message(unix.NFT_MSG_DELSET, 0, name, nil)
		s.sets[name] = nil
	default:
		return c.unknown()
	}
	return nil
}

// known returns the declaration of a set, without text if there is none.
func (s *script) known(name string) *declaration {
	found, here := s.sets[name]
	if !here && !s.emptied {
		found = s.declared(name)
	}
	if found == nil {
		found = &declaration{}
	}
	return found
}

// element translates `add element ... { key comment "..." : value }`.
func (s *script) element(c command, flags uint16, name, rest string) error {
	set := s.known(name)
	body, value, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(rest, "{ "), " }"), " : ")
	text, words := cutQuoted(body)
	key, command := []byte(text), unix.NFT_MSG_NEWSETELEM
	var data []byte
	var err error
	if set.text != "" && !set.interval {
		if key, err = parseFields(set.key, strings.Split(text, " . ")); err != nil {
			return fmt.Errorf("%s: %w", c.String(), err)
		}
	}
	switch {
	case c.verb == "delete":
		command = unix.NFT_MSG_DELSETELEM
	case c.verb != "add" && c.verb != "create":
		return c.unknown()
	case set.verdicts:
		word, chain, _ := strings.Cut(value, " ")
		data = nf.AppendVerdict(nil, verdicts[word], chain)
	case set.isMap:
		if data, err = parseFields(set.value, strings.Split(value, " . ")); err != nil {
			return fmt.Errorf("%s: %w", c.String(), err)
		}
		data = netlink.AppendBytes(nil, unix.NFTA_DATA_VALUE, data)
	}
	s.message(command, flags&^unix.NLM_F_APPEND, name, func(b []byte) []byte {
		b, list := netlink.BeginNest(b, unix.NFTA_SET_ELEM_LIST_ELEMENTS)
		b, elem := netlink.BeginNest(b, unix.NFTA_LIST_ELEM)
		b = nf.AppendData(b, unix.NFTA_SET_ELEM_KEY, key)
		b = appendUserdata(b, unix.NFTA_SET_ELEM_DATA|unix.NLA_F_NESTED, data)
		b = appendUserdata(b, unix.NFTA_SET_ELEM_USERDATA, comment(words))
		netlink.EndNest(b, elem)
		netlink.EndNest(b, list)
		return b
	})
	return nil
}

var verdicts = map[string]nf.Verdict{"accept": nf.Accept, "drop": nf.Drop, "return": nf.Return, "goto": nf.Goto, "jump": nf.Jump}
