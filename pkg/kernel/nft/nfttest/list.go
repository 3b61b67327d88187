package nfttest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
)

// List is part of [nft.Program].
func (p program) List(context.Context) (string, error) {
	text := p.list(true)
	if text == "" {
		return "", &nft.ProgramError{Errno: unix.ENOENT, Cause: fmt.Errorf("list the table: %w", unix.ENOENT)}
	}
	return text, nil
}

// Dump formats the table similarly to `nft list table`, with sets and chains sorted by name and elements by key, so that the
// same content gives the same text. Without a table it is "".
func (f *Fake) Dump() string { return program{f, f.socket}.list(false) }

// list lists the table, terse without elements and counters.
func (p program) list(terse bool) string {
	conn, of := nf.New(p.socket), p.fake.name
	objects := func(command int, visit func(m netlink.Message)) {
		err := conn.Dump(nf.Query{Command: command, Family: of.Family, Table: of.Name}, func(m netlink.Message) error {
			visit(m)
			return nil
		})
		if err != nil {
			panic(err)
		}
	}
	var b strings.Builder
	err := conn.Get(nf.Query{Command: unix.NFT_MSG_GETTABLE, Family: of.Family, Table: of.Name}, func(m netlink.Message) error {
		fmt.Fprintf(&b, "table %s %s {\n", of.Family, of.Name)
		writeComment(&b, nf.CommentOf(m.Attr(nf.AttrTableUserdata)))
		return nil
	})
	if err != nil {
		return ""
	}
	objects(unix.NFT_MSG_GETOBJ, func(m netlink.Message) {
		fmt.Fprintf(&b, "\tcounter %s {\n", m.AttrString(unix.NFTA_OBJ_NAME))
		if !terse {
			b.WriteString("\t\tpackets 0 bytes 0\n")
		}
		b.WriteString("\t}\n")
	})
	objects(unix.NFT_MSG_GETFLOWTABLE, func(m netlink.Message) {
		f := nf.DecodeFlowtable(m)
		fmt.Fprintf(&b, "\tflowtable %s {\n", f.Name)
		for _, device := range f.Devices {
			fmt.Fprintf(&b, "\t\t%s\n", device)
		}
		b.WriteString("\t}\n")
	})
	objects(unix.NFT_MSG_GETSET, func(m netlink.Message) { p.set(&b, m, terse) })
	rules := map[string][]string{}
	objects(unix.NFT_MSG_GETRULE, func(m netlink.Message) {
		r := nf.Rule{Message: m}
		rules[r.Chain()] = append(rules[r.Chain()], textOf(p.fake.name.Family, r.Expressions())+quotedComment(nf.CommentOf(r.UserData())))
	})
	chains := map[string]nf.Chain{}
	objects(unix.NFT_MSG_GETCHAIN, func(m netlink.Message) { chains[nf.DecodeChain(m).Name] = nf.DecodeChain(m) })
	for _, name := range slices.Sorted(maps.Keys(chains)) {
		fmt.Fprintf(&b, "\tchain %s {\n", name)
		writeComment(&b, chains[name].Comment)
		if c := chains[name]; c.Type != "" {
			policy := map[bool]string{false: "accept", true: "drop"}[c.Drops]
			fmt.Fprintf(&b, "\t\ttype %s hook %s priority %d; policy %s;\n", c.Type, nf.HookName(of.Family, c.Hook), c.Priority, policy)
		}
		for _, rule := range rules[name] {
			fmt.Fprintf(&b, "\t\t%s\n", rule)
		}
		b.WriteString("\t}\n")
	}
	b.WriteString("}\n")
	return b.String()
}

// set lists a set or map.
func (p program) set(b *strings.Builder, m netlink.Message, terse bool) {
	d, name, kind := declarationOf(m), m.AttrString(unix.NFTA_SET_NAME), "set"
	if d.IsMap {
		kind = "map"
	}
	fmt.Fprintf(b, "\t%s %s {\n\t\t%s\n", kind, name, d.text())
	if !terse {
		err := nf.New(p.socket).Dump(nf.Query{Command: unix.NFT_MSG_GETSETELEM, Family: p.fake.name.Family, Table: p.fake.name.Name, Name: name}, func(m netlink.Message) error {
			for a := netlink.ReadAttrs(m.Attr(unix.NFTA_SET_ELEM_LIST_ELEMENTS)); a.Next(); {
				fmt.Fprintf(b, "\t\t%s\n", d.format(a.Data))
			}
			return nil
		})
		if err != nil {
			panic(err)
		}
	}
	b.WriteString("\t}\n")
}

// format formats an element.
func (d *declaration) format(element []byte) string {
	e, err := nf.DecodeElement(element)
	if err != nil {
		panic(err)
	}
	key := string(e.Key)
	if !d.has(knftables.IntervalFlag) {
		key = formatFields(d.key, e.Key)
	}
	if d.counter && e.Packets+e.Bytes > 0 {
		key += fmt.Sprintf(" counter packets %d bytes %d", e.Packets, e.Bytes)
	}
	key += quotedComment(e.Comment)
	switch {
	case d.verdicts:
		verdict := netlink.Attr(netlink.Attr(element, unix.NFTA_SET_ELEM_DATA), unix.NFTA_DATA_VERDICT)
		return key + " : " + verdictText(verdict)
	case d.IsMap:
		return key + " : " + formatFields(d.value, e.Value)
	}
	return key
}

// verdictText formats what NFTA_DATA_VERDICT holds.
func verdictText(verdict []byte) string {
	code := nf.Verdict(netlink.ReadAttrs(verdict).FindUint32(unix.NFTA_VERDICT_CODE))
	for word, of := range verdicts {
		if of == code {
			return strings.TrimSpace(word + " " + netlink.String(netlink.Attr(verdict, unix.NFTA_VERDICT_CHAIN)))
		}
	}
	return fmt.Sprintf("verdict %d", code)
}

func writeComment(b *strings.Builder, comment string) {
	if comment != "" {
		fmt.Fprintf(b, "\t\tcomment %q\n", comment)
	}
}

func quotedComment(comment string) string {
	if comment == "" {
		return ""
	}
	return fmt.Sprintf(" comment %q", comment)
}
