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

// Text returns the transaction as an input of iptables-restore --noflush.
func (t *Transaction) Text() string {
	var b strings.Builder
	line := func(parts ...string) {
		for _, part := range parts {
			b.WriteString(part)
		}
		b.WriteByte('\n')
	}
	line("*", t.Table)
	for _, c := range t.Chains {
		line(":", c.Name, " - [0:0]")
	}
	for _, name := range t.Deleted {
		line(":", name, " - [0:0]")
	}
	for _, r := range t.Inserted {
		line("-I ", r.Chain, " ", r.Rule.Text())
	}
	for _, c := range t.Chains {
		for _, r := range c.Rules {
			line("-A ", c.Name, " ", r.Text())
		}
	}
	for _, name := range t.Deleted {
		line("-X ", name)
	}
	line("COMMIT")
	return b.String()
}

// Builtin returns the names of the built-in chains of all tables.
func Builtin() []string { return []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"} }

func isBuiltin(chain string) bool { return slices.Contains(Builtin(), chain) }
