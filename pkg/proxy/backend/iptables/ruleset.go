package iptables

import (
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// ruleset is one family's chains: the desired ones, as rendered, or those in the kernel, as read. It is immutable, and
// two versions share what is equal.
type ruleset struct {
	// chains are those that belong to this proxy alone.
	chains cluster.Map[chainName, *chain]
	// hooks are the rules in built-in chains that lead to them.
	hooks []hook
	// localnet means that node ports are served on 127.0.0.0/8.
	localnet bool
}

// chain is the rules of a chain, in order.
type chain struct {
	body
	// unit is the port of a Service whose chains are written together with this one; zero for all others.
	unit portKey
	rank rank
	// altered means that the chain was modified or deleted externally, so its rules are not known.
	altered bool
}

// hook is a rule in a built-in chain that leads to a chain of ours.
type hook struct {
	in   chainName
	to   string
	rule ipt.Rule
}

// equal reports whether two hooks are equivalent.
func (h hook) equal(o hook) bool {
	return h.in == o.in && h.to == o.to && h.rule.Equal(o.rule)
}

// len returns the number of rules; 0 for nil.
func (c *chain) len() int {
	if c == nil {
		return 0
	}
	return c.count
}

// equal reports whether two chains are equivalent.
func (c *chain) equal(o *chain) bool {
	return !c.altered && !o.altered && c.body.equal(o.body)
}
