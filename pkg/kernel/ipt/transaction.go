package ipt

import (
	"slices"
	"strings"
)

// Transaction is a set of changes of one table, which are made together or not at all.
type Transaction struct {
	Table string
	// Chains are created or emptied, and filled. Others keep their rules.
	Chains []Chain
	// Inserted are inserted at the heads of built-in chains, one after the other.
	Inserted []ChainRule
	// Deleted are user chains, which are emptied first. They may not exist.
	Deleted []string
}

// Chain is a user chain with all its rules.
type Chain struct {
	Name  string
	Rules []Rule
}

// ChainRule is a rule of a chain.
type ChainRule struct {
	Chain string
	Rule  Rule
}

// each calls functions with the changes, in their order. Chains are declared, which creates or empties them, before rules go to them.
func (t *Transaction) each(declare func(chain string), insert, add func(chain string, rule Rule), remove func(chain string)) {
	for _, c := range t.Chains {
		declare(c.Name)
	}
	for _, name := range t.Deleted {
		declare(name)
	}
	for _, r := range t.Inserted {
		insert(r.Chain, r.Rule)
	}
	for _, c := range t.Chains {
		for _, r := range c.Rules {
			add(c.Name, r)
		}
	}
	for _, name := range t.Deleted {
		remove(name)
	}
}

// lineLength is a little more than the mean length of a rule's line and its part of the chain's declaration.
const lineLength = 160

// Text returns the transaction as an input of iptables-restore --noflush.
func (t *Transaction) Text() string {
	var b strings.Builder
	line := func(parts ...string) {
		for _, part := range parts {
			b.WriteString(part)
		}
		b.WriteByte('\n')
	}
	var buffer []byte
	rule := func(command, chain string, r Rule) {
		buffer = r.appendText(buffer[:0])
		b.WriteString(command)
		b.WriteString(chain)
		b.WriteByte(' ')
		b.Write(buffer)
		b.WriteByte('\n')
	}
	lines := len(t.Inserted)
	for _, c := range t.Chains {
		lines += len(c.Rules)
	}
	b.Grow(lineLength * lines)
	line("*", t.Table)
	t.each(
		func(chain string) { line(":", chain, " - [0:0]") },
		func(chain string, r Rule) { rule("-I ", chain, r) },
		func(chain string, r Rule) { rule("-A ", chain, r) },
		func(chain string) { line("-X ", chain) },
	)
	line("COMMIT")
	return b.String()
}

// Builtin returns the names of the built-in chains of all tables, by hook number, enum nf_inet_hooks.
func Builtin() []string { return []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"} }

func isBuiltin(chain string) bool { return slices.Contains(Builtin(), chain) }
