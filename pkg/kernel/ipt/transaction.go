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
	for _, c := range t.Chains {
		line(":", c.Name, " - [0:0]")
	}
	for _, name := range t.Deleted {
		line(":", name, " - [0:0]")
	}
	for _, r := range t.Inserted {
		rule("-I ", r.Chain, r.Rule)
	}
	for _, c := range t.Chains {
		for _, r := range c.Rules {
			rule("-A ", c.Name, r)
		}
	}
	for _, name := range t.Deleted {
		line("-X ", name)
	}
	line("COMMIT")
	return b.String()
}

// Builtin returns the names of the built-in chains of all tables, by hook number, enum nf_inet_hooks.
func Builtin() []string { return []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"} }

func isBuiltin(chain string) bool { return slices.Contains(Builtin(), chain) }
