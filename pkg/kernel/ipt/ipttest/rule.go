package ipttest

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
)

// dialect is the context in which a rule is parsed.
type dialect struct {
	family   ipt.Family
	table    string
	features ipt.Features
	// user are the chains, and whether they are user chains.
	user map[string]bool
}

// parsedRule is a rule as iptables prints it, with its target.
type parsedRule struct{ text, target string }

// modules are the matches that the fake supports and their options, each with the number of words that follow it.
var modules = map[string]map[string]int{
	"comment":   {"--comment": 1},
	"tcp":       {"--dport": 1, "--sport": 1},
	"udp":       {"--dport": 1, "--sport": 1},
	"sctp":      {"--dport": 1, "--sport": 1},
	"conntrack": {"--ctstate": 1, "--ctorigdst": 1},
	"addrtype":  {"--dst-type": 1, "--src-type": 1},
	"mark":      {"--mark": 1},
	"statistic": {"--mode": 1, "--probability": 1, "--every": 1, "--packet": 1},
	"hashlimit": {"--hashlimit-above": 1, "--hashlimit-burst": 1, "--hashlimit-mode": 1, "--hashlimit-name": 1, "--hashlimit-htable-max": 1},
	"connlimit": {"--connlimit-above": 1, "--connlimit-mask": 1, "--connlimit-saddr": 0},
	"recent":    {"--rcheck": 0, "--update": 0, "--set": 0, "--seconds": 1, "--reap": 0, "--name": 1, "--mask": 1, "--rsource": 0},
}

// targets are the targets that the fake supports: the tables that allow them, none meaning all, and their options. Which built-in chains
// allow them the kernel knows.
var targets = map[string]struct {
	tables  []string
	options map[string]int
}{
	"ACCEPT":     {},
	"DROP":       {},
	"RETURN":     {},
	"MARK":       {options: map[string]int{"--set-xmark": 1, "--or-mark": 1, "--xor-mark": 1}},
	"DNAT":       {tables: []string{"nat"}, options: map[string]int{"--to-destination": 1}},
	"MASQUERADE": {tables: []string{"nat"}, options: map[string]int{"--random-fully": 0}},
	"REJECT":     {tables: []string{"filter"}, options: map[string]int{"--reject-with": 1}},
}

// ruleParser parses the words of one rule.
type ruleParser struct {
	dialect
	words    []string
	protocol string
	module   string
	target   string
	// general are the parts that iptables prints first, in its order: -s, -d, -i, -o, -p; rest the others.
	general [5]string
	rest    []string
}

// parse parses a rule and formats it as iptables does.
func (d dialect) parse(words []string) (parsedRule, error) {
	p := &ruleParser{dialect: d, words: words}
	for len(p.words) > 0 {
		if err := p.part(); err != nil {
			return parsedRule{}, err
		}
	}
	var parts []string
	for _, part := range append(p.general[:], p.rest...) {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return parsedRule{strings.Join(parts, " "), p.target}, nil
}

func (p *ruleParser) take(option string) (string, error) {
	if len(p.words) == 0 {
		return "", fmt.Errorf("option %q requires an argument", option)
	}
	word := p.words[0]
	p.words = p.words[1:]
	return word, nil
}

// part parses one option with its words.
func (p *ruleParser) part() error {
	option, _ := p.take("")
	negation := ""
	if option == "!" {
		negation = "! "
		var err error
		if option, err = p.take("!"); err != nil {
			return err
		}
	}
	switch option {
	case "-s", "-d", "-i", "-o", "-p":
		return p.head(option, negation)
	case "-m":
		module, err := p.take(option)
		if err != nil {
			return err
		}
		if modules[module] == nil {
			return fmt.Errorf("Couldn't load match `%s'", module) //nolint:staticcheck // iptables' own words
		}
		if slices.Contains([]string{"tcp", "udp", "sctp"}, module) && module != p.protocol {
			return fmt.Errorf("the match %s needs -p %s", module, module)
		}
		p.module = module
		p.rest = append(p.rest, "-m "+module)
		return nil
	case "-j", "-g":
		return p.goes(option)
	}
	words, known := modules[p.module][option]
	if p.target != "" {
		words, known = targets[p.target].options[option]
		if strings.HasPrefix(p.target, "KUBE") {
			known = false
		}
	}
	if !known {
		return fmt.Errorf("unknown option %q", option)
	}
	text := negation + option
	if words == 1 {
		value, err := p.take(option)
		if err != nil {
			return err
		}
		if text, err = p.value(negation, option, value); err != nil {
			return err
		}
	}
	p.rest = append(p.rest, text)
	return nil
}

// head parses an option of the rule's head.
func (p *ruleParser) head(option, negation string) error {
	value, err := p.take(option)
	if err != nil {
		return err
	}
	at := slices.Index([]string{"-s", "-d", "-i", "-o", "-p"}, option)
	if p.general[at] != "" {
		return fmt.Errorf("multiple %s flags not allowed", option)
	}
	switch option {
	case "-s", "-d":
		if value, err = p.addr(value); err != nil {
			return err
		}
	case "-p":
		if !slices.Contains([]string{"tcp", "udp", "sctp"}, value) {
			return fmt.Errorf("unknown protocol %q", value)
		}
		p.protocol = value
	default:
		if value == "" || len(value) > 15 || strings.ContainsAny(value, " /!") {
			return fmt.Errorf("%q is not an interface name", value)
		}
	}
	p.general[at] = negation + option + " " + value
	return nil
}

// addr parses ADDRESS, ADDRESS/BITS or ADDRESS/MASK.
func (p *ruleParser) addr(value string) (string, error) {
	addr, mask, masked := strings.Cut(value, "/")
	a, err := netip.ParseAddr(addr)
	if err != nil || a.Is4() != (p.family == ipt.IPv4) {
		return "", fmt.Errorf("host/network `%s' not found", value)
	}
	if !masked {
		return fmt.Sprintf("%s/%d", a, a.BitLen()), nil
	}
	if m, err := netip.ParseAddr(mask); err == nil && m.BitLen() == a.BitLen() {
		if !p.features.AddressBits && m.AsSlice()[0] == 0 {
			return "", fmt.Errorf("RULE_APPEND failed (Invalid argument): %s", value)
		}
		return value, nil
	}
	prefix, err := netip.ParsePrefix(value)
	if err != nil {
		return "", fmt.Errorf("invalid mask `%s' specified", mask)
	}
	return prefix.Masked().String(), nil
}

// goes parses the target.
func (p *ruleParser) goes(option string) error {
	target, err := p.take(option)
	if err != nil {
		return err
	}
	known, isTarget := targets[target]
	user, isChain := p.user[target]
	switch {
	case p.target != "":
		return fmt.Errorf("multiple -j flags not allowed")
	case option == "-g" && !isChain, !isChain && !isTarget:
		return fmt.Errorf("Chain '%s' does not exist", target) //nolint:staticcheck // iptables' own words
	case isChain && !user:
		return fmt.Errorf("%s is built in", target)
	case len(known.tables) > 0 && !slices.Contains(known.tables, p.table):
		return fmt.Errorf("%s: only valid in the table %s", target, known.tables)
	}
	p.target, p.module = target, ""
	p.rest = append(p.rest, option+" "+target)
	return nil
}

// value checks an option's value and formats both as iptables does.
func (p *ruleParser) value(negation, option, value string) (string, error) {
	text := option + " " + value
	switch option {
	case "--comment":
		text = option + " " + quoted(value[:min(len(value), ipt.MaxComment)])
	case "--probability":
		f, err := strconv.ParseFloat(value, 64)
		if err != nil || f < 0 || f > 1 {
			return "", fmt.Errorf("%s is not a probability", value)
		}
		text = fmt.Sprintf("%s %.11f", option, math.Round(f*0x80000000)/0x80000000)
	case "--to-destination":
		to, err := netip.ParseAddrPort(value)
		if err != nil || to.Addr().Is4() != (p.family == ipt.IPv4) || to.Port() == 0 {
			return "", fmt.Errorf("bad destination %q", value)
		}
		if p.protocol == "" {
			return "", fmt.Errorf("need TCP, UDP, SCTP or DCCP with port specification")
		}
	case "--dport", "--sport":
		for port := range strings.SplitSeq(value, ":") {
			if _, err := strconv.ParseUint(port, 10, 16); err != nil {
				return "", fmt.Errorf("invalid port/service `%s' specified", value)
			}
		}
	case "--or-mark":
		text = "--set-xmark " + value + "/" + value
	case "--xor-mark":
		text = "--set-xmark " + value + "/0x0"
	}
	return negation + text, nil
}

// quoted formats a word as iptables does: in quotation marks, if it has anything other than letters, digits and _ . -
func quoted(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_.-", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(word) + `"`
}
