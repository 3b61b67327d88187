package iptables

import "github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"

// ruleset is one family's chains: those that there should be, as render makes them, or those that the kernel holds, as read
// returns them. It never changes, and two versions share what is equal.
type ruleset struct {
	// chains are those that belong to this proxy alone.
	chains cluster.Map[chainName, *chain]
	// hooks are the rules in built-in chains that lead to them.
	hooks []hook
	// localnet means that node ports are served on 127.0.0.0/8.
	localnet bool
}

// chain is the rules of a chain, in their order.
type chain struct {
	lines []line
	// unit is the port of a Service whose chains are written together with this one; zero for all others.
	unit portKey
	rank rank
	// read means that iptables printed the lines, which may have their parts in another order than rendered ones; altered
	// that another program changed or deleted the chain, so that what it holds is not known.
	read, altered bool
}

// hook is a rule in a built-in chain that leads to a chain of ours.
type hook struct {
	in chainName
	to string
	// text is the whole rule.
	text string
}

// equal reports whether two hooks mean the same.
func (h hook) equal(o hook) bool {
	return h.in == o.in && h.to == o.to && (h.text == o.text || canonical(h.text) == canonical(o.text))
}

// len is the number of rules; that of no chain is 0.
func (c *chain) len() int {
	if c == nil {
		return 0
	}
	return len(c.lines)
}

// equal reports whether two chains mean the same.
func (c *chain) equal(o *chain) bool {
	if c.altered || o.altered || len(c.lines) != len(o.lines) {
		return false
	}
	for i := range c.lines {
		a, b := c.lines[i].text, o.lines[i].text
		same := a == b || (c.read || o.read) && canonical(a) == canonical(b)
		if !same {
			return false
		}
	}
	return true
}
