package ipt

import (
	"bytes"
	"context"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// Compared is what [Tables.Compare] returns for a chain.
type Compared struct {
	// Equal means that it has the expected rules.
	Equal bool
	// Rules is how many it has.
	Rules int
}

// Expected returns the rules that [Tables.Compare] expects of a chain, valid until the next call. others means that the chain may have
// others, and any order.
type Expected func(chain string) (rules []Rule, others bool)

// comparer compares a chain's rules in the kernel with expected ones.
type comparer struct {
	encoder encoder
	// buffer holds the expressions of an expected rule.
	buffer []byte
	// held holds the expressions of the kernel's rules one after the other, and ends where each ends.
	held []byte
	ends []int
}

// compare reads the chains of a table: all of them, or those given. If ctx ends it returns those that it has read, at least one, with an
// error.
func (d *direct) compare(ctx context.Context, table string, expected Expected, given []string) (map[string]Compared, error) {
	if err := d.idle(ctx); err != nil {
		return nil, err
	}
	out := map[string]Compared{}
	c := &comparer{encoder: encoder{family: d.family}}
	err := d.eachChain(ctx, table, given, func(chain string) error {
		c.held, c.ends = c.held[:0], c.ends[:0]
		err := d.rules(table, chain, c.read)
		if err == nil {
			rules, others := expected(chain)
			out[chain] = Compared{Equal: c.are(rules, others), Rules: len(c.ends)}
		}
		return err
	})
	return out, err
}

// read keeps the next rule of a chain.
func (c *comparer) read(rule nf.Rule) {
	c.held = append(c.held, rule.Expressions().Rest()...)
	c.ends = append(c.ends, len(c.held))
}

// are reports whether the rules that were read are the given ones, perhaps among others.
func (c *comparer) are(rules []Rule, others bool) bool {
	if others {
		return !slices.ContainsFunc(rules, func(rule Rule) bool { return !c.has(rule) })
	}
	if len(rules) != len(c.ends) {
		return false
	}
	from := 0
	for i, rule := range rules {
		if !c.is(rule, netlink.ReadAttrs(c.held[from:c.ends[i]])) {
			return false
		}
		from = c.ends[i]
	}
	return true
}

// has reports whether a rule is among those that were read.
func (c *comparer) has(rule Rule) bool {
	from := 0
	for _, end := range c.ends {
		if c.is(rule, netlink.ReadAttrs(c.held[from:end])) {
			return true
		}
		from = end
	}
	return false
}

// is reports whether the kernel's expressions are those of a rule, in either encoding: iptables-restore writes what cannot be
// written directly, and the program of another release may have written the table. The encoding found last is tried first,
// because it is mostly that of the whole table.
func (c *comparer) is(rule Rule, held netlink.Attrs) bool {
	for range 2 {
		encoded, _, known := c.encoder.rule(c.buffer[:0], rule)
		c.buffer = encoded
		if known && sameExpressions(encoded, held) {
			return true
		}
		c.encoder.newer = !c.encoder.newer
	}
	return false
}

// sameExpressions reports whether a rule that was written is the one that the kernel holds: its expressions in order,
// except for what counters counted. The kernel also returns attributes that iptables leaves out, with values that mean
// the same as their absence.
func sameExpressions(written []byte, held netlink.Attrs) bool {
	w := netlink.ReadAttrs(written)
	for w.Next() {
		if !held.Next() {
			return false
		}
		name, some := nf.ReadExpr(w.Data)
		heldName, all := nf.ReadExpr(held.Data)
		if !bytes.Equal(name, heldName) || string(name) != "counter" && !contains(all, some) {
			return false
		}
	}
	return !held.Next()
}

// contains reports whether all attributes of some are among others with the same values.
func contains(all, some netlink.Attrs) bool {
	for some.Next() {
		data := all.Find(some.Type)
		same := bytes.Equal(data, some.Data)
		if some.IsNest {
			same = contains(netlink.ReadAttrs(data), some.Nested())
		}
		if data == nil || !same {
			return false
		}
	}
	return true
}
