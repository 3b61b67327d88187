package nfttest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// dumpOptions select what a dump leaves out.
type dumpOptions struct {
	except   string // a chain
	skeleton bool   // without elements
}

// Dump formats the table similarly to `nft list table`, with sets and chains sorted by name and elements by key, so that the
// same content gives the same text. Without a table it is "".
func (f *Fake) Dump() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.dump(dumpOptions{})
}

func (s *fakeState) dump(o dumpOptions) string {
	if s.table == nil {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "table %s %s {\n", s.family, s.name)
	dumpComment(&b, s.table.comment)
	for _, name := range slices.Sorted(maps.Keys(s.table.counters)) {
		s.table.counters[name].dump(&b, name, o)
	}
	for _, name := range slices.Sorted(maps.Keys(s.table.sets)) {
		s.table.sets[name].dump(&b, name, o)
	}
	for _, name := range slices.Sorted(maps.Keys(s.table.chains)) {
		if name != o.except || name == "" {
			s.table.chains[name].dump(&b, name)
		}
	}
	b.WriteString("}\n")
	return b.String()
}

// rules returns the rules of each chain.
func (s *fakeState) rules() map[string][]string {
	rules := map[string][]string{}
	for name, c := range s.table.chains {
		rules[name] = nil
		for _, r := range c.rules {
			rules[name] = append(rules[name], r.text+quotedComment(r.comment))
		}
	}
	return rules
}

func dumpComment(b *strings.Builder, comment string) {
	if comment != "" {
		fmt.Fprintf(b, "\t\tcomment %q\n", comment)
	}
}

func (c *fakeChain) dump(b *strings.Builder, name string) {
	fmt.Fprintf(b, "\tchain %s {\n", name)
	dumpComment(b, c.comment)
	if c.base != nil {
		hooks := []string{"prerouting", "input", "forward", "output", "postrouting"}
		fmt.Fprintf(b, "\t\ttype %s hook %s priority %d; policy %s;\n", c.base.typ, hooks[c.base.hook], c.base.priority, c.base.policy)
	}
	for _, r := range c.rules {
		fmt.Fprintf(b, "\t\t%s%s\n", r.text, quotedComment(r.comment))
	}
	b.WriteString("\t}\n")
}

func (s *fakeSet) dump(b *strings.Builder, name string, o dumpOptions) {
	kind := "set"
	if s.isMap {
		kind = "map"
	}
	fmt.Fprintf(b, "\t%s %s {\n\t\t%s\n", kind, name, s.declaration)
	if !o.skeleton {
		for _, key := range slices.Sorted(maps.Keys(s.elements)) {
			fmt.Fprintf(b, "\t\t%s\n", s.elements[key].format(s, formatFields(s.key, []byte(key))))
		}
		for _, key := range slices.Sorted(maps.Keys(s.texts)) {
			fmt.Fprintf(b, "\t\t%s\n", s.texts[key].format(s, key))
		}
	}
	b.WriteString("\t}\n")
}

// format formats an element.
func (e fakeElement) format(s *fakeSet, key string) string {
	if s.counter && e.packets+e.bytes > 0 {
		key += fmt.Sprintf(" counter packets %d bytes %d", e.packets, e.bytes)
	}
	key += quotedComment(e.comment)
	switch {
	case s.verdicts:
		return key + " : " + strings.TrimSpace(e.verdict.word+" "+e.verdict.chain)
	case s.isMap:
		return key + " : " + formatFields(s.value, e.value)
	}
	return key
}

func quotedComment(comment string) string {
	if comment == "" {
		return ""
	}
	return fmt.Sprintf(" comment %q", comment)
}

// objectsOf splits a dump into its objects, by their kinds and names as [nft.Table] has them.
func objectsOf(dump string) map[string]string {
	objects, name := map[string]string{}, ""
	for line := range strings.Lines(dump) {
		if title, ok := strings.CutPrefix(line, "\t"); ok && !strings.HasPrefix(title, "\t") && strings.HasSuffix(title, " {\n") {
			kind, rest, _ := strings.Cut(strings.TrimSuffix(title, " {\n"), " ")
			switch kind {
			case "map":
				kind = "set"
			case "counter":
				kind = "object"
			}
			name = kind + " " + rest
		}
		if name != "" {
			objects[name] += line
		}
	}
	return objects
}
