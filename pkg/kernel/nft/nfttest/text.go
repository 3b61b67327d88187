package nfttest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
)

// command is one line of a transaction, as knftables writes it for nft.
type command struct {
	verb, kind string
	family     string
	table      string
	rest       string // what follows the table
}

// commands returns a transaction in nft's language, or the error of an operation that was added to it.
func (f *Fake) commands(tx *nft.Transaction) (string, error) {
	const failed = "# ERROR: " // knftables has no other way to ask for the error
	text := tx.Onto(knftables.NewFake(f.family, f.name).NewTransaction()).String()
	if cause, found := strings.CutPrefix(text[strings.LastIndexByte(text, '\n')+1:], failed); found {
		return "", errors.New(cause)
	}
	return text, nil
}

// parse splits a transaction into its commands.
func (f *Fake) parse(tx *nft.Transaction) ([]command, error) {
	text, err := f.commands(tx)
	if err != nil {
		return nil, err
	}
	var out []command
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		words := strings.SplitN(line, " ", 5)
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

func (c command) String() string {
	return strings.Join([]string{c.verb, c.kind, c.family, c.table, c.rest}, " ")
}

func (c command) unknown() error {
	return fmt.Errorf("the fake does not understand %q", c.String())
}

// runAll runs commands as one transaction.
func (s *fakeState) runAll(commands []command) error {
	return s.transact(func() error {
		for _, c := range commands {
			if err := s.run(c); err != nil {
				return err
			}
		}
		return nil
	})
}

// run runs a command.
func (s *fakeState) run(c command) error {
	if c.family != string(s.family) || c.table != s.name {
		return fmt.Errorf("%q is about another table", c.String())
	}
	if c.verb == "destroy" {
		return fmt.Errorf("%q: nft before 1.0.8 has no `destroy`: use Add and Delete", c.String())
	}
	if strings.HasPrefix(c.rest, "handle ") {
		return fmt.Errorf("%q: the fake does not support handles", c.String())
	}
	name, rest, _ := strings.Cut(c.rest, " ")
	var err error
	switch c.kind {
	case "table":
		err = s.runTable(c)
	case "chain":
		err = s.runChain(c, name, rest)
	case "rule":
		err = s.runRule(c, name, rest)
	case "set", "map":
		err = s.runSet(c, name, rest)
	case "counter":
		err = s.runCounter(c, name)
	case "element":
		err = s.runElement(c, name, rest)
	default:
		err = c.unknown()
	}
	if _, ok := errors.AsType[*refusal](err); ok {
		return fmt.Errorf("%s: %w", c.String(), err)
	}
	return err
}

func (s *fakeState) runTable(c command) error {
	switch c.verb {
	case "add", "create":
		return s.addTable(parseProperties(c.rest).comment, c.verb == "create")
	case "flush":
		return s.flushTable()
	case "delete":
		return s.deleteTable()
	}
	return c.unknown()
}

func (s *fakeState) runChain(c command, name, rest string) error {
	switch c.verb {
	case "add", "create":
		p := parseProperties(rest)
		base, err := p.base()
		if err != nil {
			return err
		}
		return s.addChain(name, p.comment, base, c.verb == "create")
	case "flush":
		return s.flushChain(name)
	case "delete":
		return s.deleteChain(name)
	}
	return c.unknown()
}

func (s *fakeState) runRule(c command, chain, rest string) error {
	at := -1
	if c.verb == "insert" {
		at = 0
	}
	if text, ok := strings.CutPrefix(rest, "handle "); ok {
		return fmt.Errorf("the fake does not support handles: %q", text)
	}
	if text, ok := strings.CutPrefix(rest, "index "); ok {
		number, text, _ := strings.Cut(text, " ")
		n, err := strconv.Atoi(number)
		target, chainErr := s.chain(chain)
		if err != nil || chainErr != nil || n >= len(target.rules) {
			return refuse(unix.ENOENT, "no rule %s in chain %s", number, chain)
		}
		at, rest = n, text
		if c.verb == "add" {
			at++
		}
	}
	if c.verb != "add" && c.verb != "insert" {
		return c.unknown()
	}
	r := parseRule(rest)
	if err := s.readable(r); err != nil {
		return err
	}
	return s.addRule(chain, r, at)
}

// readable refuses the rules that nft 1.0.6 refuses: if it has to read from the kernel the type of a map that was declared
// with `typeof ... : ip daddr . th dport`, it takes the port for a condition of the rule. See README.md.
func (s *fakeState) readable(r fakeRule) error {
	if !strings.Contains(r.text, "dnat ") {
		return nil
	}
	for _, name := range r.sets {
		if s.table != nil && s.table.sets[name] != nil && s.table.sets[name].typedByPort && !s.declared[name] {
			return fmt.Errorf("%q: nft 1.0.6 says `conflicting protocols specified`: map %s was declared earlier, with typeof and a port among its values: use Batch.AddRule", r.text, name)
		}
	}
	return nil
}

func (s *fakeState) runSet(c command, name, rest string) error {
	switch c.verb {
	case "add", "create":
		set, err := parseProperties(rest).set(c.kind == "map")
		if err != nil {
			return fmt.Errorf("%s: %w", c.String(), err)
		}
		return s.addSet(name, set, c.verb == "create")
	case "flush":
		return s.flushSet(name)
	case "delete":
		return s.deleteSet(name)
	}
	return c.unknown()
}

// runElement runs `add element ... { key comment "..." : value }`.
func (s *fakeState) runElement(c command, name, rest string) error {
	set, err := s.set(name)
	if err != nil {
		return err
	}
	body := strings.TrimSuffix(strings.TrimPrefix(rest, "{ "), " }")
	body, value, _ := strings.Cut(body, " : ")
	key, comment := cutQuoted(body)
	e := fakeElement{comment: nft.CutComment(comment)}
	elements := set.texts
	if !set.interval {
		b, err := parseFields(set.key, strings.Split(key, " . "))
		if err != nil {
			return fmt.Errorf("%s: %w", c.String(), err)
		}
		key, elements = string(b), set.elements
	}
	switch {
	case c.verb == "delete":
		return s.deleteElement(set, elements, key)
	case c.verb != "add" && c.verb != "create":
		return c.unknown()
	case set.verdicts:
		word, chain, _ := strings.Cut(value, " ")
		e.verdict = fakeVerdict{word, chain}
	case set.isMap:
		if e.value, err = parseFields(set.value, strings.Split(value, " . ")); err != nil {
			return fmt.Errorf("%s: %w", c.String(), err)
		}
	}
	return s.addElement(set, elements, key, e, c.verb == "create")
}

// cutQuoted cuts `comment "text"` from the end.
func cutQuoted(s string) (before, comment string) {
	before, quoted, ok := strings.Cut(s, " comment \"")
	if !ok {
		return s, ""
	}
	comment, err := strconv.Unquote("\"" + strings.TrimSpace(quoted))
	if err != nil {
		comment = quoted
	}
	return before, comment
}

// parseRule finds the objects that a rule refers to.
func parseRule(text string) fakeRule {
	text, comment := cutQuoted(text)
	r := fakeRule{text: text, comment: comment}
	words := strings.Fields(text)
	for i, w := range words {
		if name, ok := strings.CutPrefix(w, "@"); ok && name != "" && !strings.Contains(name, ",") {
			r.sets = append(r.sets, name)
		}
		if w == "name" && i > 0 && words[i-1] == "counter" && i+1 < len(words) {
			r.counters = append(r.counters, strings.Trim(words[i+1], `"`))
		}
		if (w == "goto" || w == "jump") && i+1 < len(words) {
			r.chains = append(r.chains, words[i+1])
		}
	}
	return r
}

// properties are the parts between the braces of a declaration.
type properties struct {
	list    []string
	comment string
}

func parseProperties(s string) (p properties) {
	s = strings.TrimSuffix(strings.TrimPrefix(s, "{"), "}")
	if before, quoted, ok := strings.Cut(" "+s, " comment "); ok {
		if q, err := strconv.QuotedPrefix(quoted); err == nil {
			p.comment, _ = strconv.Unquote(q)
			s = before + strings.TrimPrefix(quoted, q)
		}
	}
	for part := range strings.SplitSeq(s, ";") {
		if part = strings.TrimSpace(part); part != "" {
			p.list = append(p.list, part)
		}
	}
	return p
}

// value returns what follows a property's name.
func (p properties) value(name string) (string, bool) {
	for _, part := range p.list {
		word, rest, _ := strings.Cut(part, " ")
		if word == name {
			return rest, true
		}
	}
	return "", false
}

// base parses the part of a base chain: `type nat hook prerouting priority -100`.
func (p properties) base() (*fakeBase, error) {
	spec, ok := p.value("type")
	if !ok {
		return nil, nil
	}
	words := strings.Fields(spec)
	hooks := []string{"prerouting", "input", "forward", "output", "postrouting"}
	if len(words) != 5 || !slices.Contains(hooks, words[2]) {
		return nil, fmt.Errorf("the fake does not understand the chain %q", spec)
	}
	priority, err := knftables.ParsePriority(knftables.IPv4Family, words[4])
	if err != nil {
		return nil, err
	}
	policy, _ := p.value("policy")
	return &fakeBase{typ: words[0], hook: uint32(slices.Index(hooks, words[2])), priority: int32(priority), policy: policy}, nil
}

// set parses the declaration of a set or map.
func (p properties) set(isMap bool) (*fakeSet, error) {
	s := &fakeSet{
		isMap: isMap, elements: map[string]fakeElement{}, texts: map[string]fakeElement{}, goes: map[string]int{},
		declaration: strings.Join(p.list, "; "),
	}
	types, ok := p.value("type")
	if !ok {
		types, _ = p.value("typeof")
	}
	key, value, hasValue := strings.Cut(types, " : ")
	if hasValue != isMap {
		return nil, errors.New("a map needs a type for keys and one for values, a set one for keys")
	}
	var err error
	if s.key, err = parseTypes(key); err != nil {
		return nil, err
	}
	if s.verdicts = value == "verdict"; isMap && !s.verdicts {
		if s.value, err = parseTypes(value); err != nil {
			return nil, err
		}
	}
	_, typeof := p.value("typeof")
	s.typedByPort = typeof && slices.Contains(s.value, fieldPort)
	flags, _ := p.value("flags")
	s.interval = slices.Contains(strings.Split(flags, ","), "interval")
	s.dynamic = slices.Contains(strings.Split(flags, ","), "dynamic")
	s.timeout = slices.Contains(strings.Split(flags, ","), "timeout")
	_, s.counter = p.value("counter")
	if size, ok := p.value("size"); ok {
		if s.size, err = strconv.Atoi(size); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// parseTypes parses `ipv4_addr . inet_proto` or `ip daddr . meta l4proto`.
func parseTypes(s string) ([]field, error) {
	var out []field
	for part := range strings.SplitSeq(s, " . ") {
		f, ok := fieldOf(strings.TrimSpace(part))
		if !ok {
			return nil, fmt.Errorf("the fake does not know the type of %q", part)
		}
		out = append(out, f)
	}
	return out, nil
}

// fieldOf returns the type of an expression, or the type with that name.
func fieldOf(s string) (field, bool) {
	for f := range field(1 << typeBits) {
		if name, _ := f.spec(); name == s && s != "" {
			return f, true
		}
	}
	switch s {
	case "ip saddr", "ip daddr", "ct original ip saddr", "ct original ip daddr":
		return fieldIPv4, true
	case "ip6 saddr", "ip6 daddr", "ct original ip6 saddr", "ct original ip6 daddr":
		return fieldIPv6, true
	case "meta l4proto", "ip protocol", "ip6 nexthdr":
		return fieldProto, true
	case "th sport", "th dport", "tcp dport", "udp dport", "sctp dport", "tcp sport", "udp sport", "sctp sport", "ct original proto-dst":
		return fieldPort, true
	case "meta mark", "ct mark":
		return fieldMark, true
	case "iifname", "oifname", "meta iifname", "meta oifname":
		return fieldIfName, true
	}
	return fieldInteger, strings.HasPrefix(s, "numgen ")
}
