package iptables

import (
	"context"
	"iter"
	"net/netip"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

var _ backend.ConnectionCounter = (*Backend)(nil)

// Counts implements [backend.ConnectionCounter]. Every iptables rule counts.
func (*Backend) Counts(cluster.Family) backend.Counting { return backend.CountEndpoints }

// Connections implements [backend.ConnectionCounter]. It reads the chains with rules of the routes, as they were last
// written. A chain that was written again in the meantime counts nothing.
func (b *Backend) Connections(ctx context.Context, family cluster.Family, routes iter.Seq[*plan.Route], endpoints bool) (*backend.Connections, error) {
	counts := backend.NewConnections()
	f, written := b.written(family)
	if written == nil {
		return counts, nil
	}
	w := newWriter(family, written.from.Node, f.renderer.opts, f.renderer.can)
	m := &meter{writer: w, written: written, wanted: map[chainName]map[string]func(uint64){}, counts: counts}
	ports := map[portKey]bool{}
	for route := range routes {
		m.frontend(route)
		ports[keyOf(route)] = true
	}
	if endpoints {
		for key := range ports {
			m.port(key)
		}
	}
	for _, table := range []string{tableNAT, tableFilter} {
		if err := m.read(ctx, table, f.door.Packets); err != nil {
			return nil, err
		}
	}
	return counts, nil
}

// meter selects rules and reads their counters.
type meter struct {
	*writer
	written *rendering
	// wanted holds, by chain and rule text, where the rule's counter is added.
	wanted map[chainName]map[string]func(packets uint64)
	counts *backend.Connections
}

// want selects the counter of a rule in a chain.
func (m *meter) want(in chainName, rule ipt.Rule, add func(uint64)) {
	if m.wanted[in] == nil {
		m.wanted[in] = map[string]func(uint64){}
	}
	m.wanted[in][rule.Text()] = add
}

// frontend selects the counters of a frontend: of the rule in the nat table that sends its connections on, and of the
// rules in the filter table that refuse packets.
func (m *meter) frontend(r *plan.Route) {
	f := r.Frontend
	for at, b := range m.frontendBodies(r) {
		in := m.chainOfFrontend(place(at), f)
		rules := b.rules()
		for i, rule := range rules {
			switch {
			case place(at) <= natNodePorts:
				m.want(in, rule, func(n uint64) { m.counts.Frontends[f] += n })
			case place(at) == filterRestricted && i == len(rules)-1: // other sources are not counted
			case r.Verdict == plan.Balance:
				m.want(in, rule, func(n uint64) { m.counts.Limited[f] += n })
			default:
				m.want(in, rule, func(n uint64) { m.counts.Refused[f] += n })
			}
		}
	}
}

// chainOfFrontend returns the chain that has a frontend's rules in a place.
func (m *meter) chainOfFrontend(at place, f plan.Frontend) chainName {
	d := dispatches(m.capabilities)[at]
	node := m.written.trees[at]
	if node.inline() {
		return chainName{d.table, d.few}
	}
	var path []int
	for node != nil && node.branches != nil && len(path) < d.shape.levels {
		digit := d.shape.digit(f, len(path))
		node, path = node.branches[digit], append(path, digit)
	}
	return d.chain(path)
}

// port selects the counters of a port's endpoints: of all rules in the chains of its pools that send connections to one.
func (m *meter) port(key portKey) {
	for _, prefix := range []string{prefixCluster, prefixLocal} {
		in := chainName{tableNAT, key.chain(prefix)}
		chain, _ := m.written.chains.Get(in)
		if chain == nil {
			continue
		}
		for _, rule := range chain.rules() {
			if endpoint := m.endpoint(rule.Target); endpoint.IsValid() {
				counter := backend.EndpointCounter{PortEndpoint: backend.PortEndpoint{Port: key.name, Protocol: key.protocol, Endpoint: endpoint}, In: in.name}
				m.want(in, rule, func(n uint64) { m.counts.Endpoints[counter] += n })
			}
		}
	}
}

// endpoint returns the endpoint that a target sends connections to, perhaps through its chain; it is invalid if there is none.
func (m *meter) endpoint(target ipt.Target) netip.AddrPort {
	switch to := target.(type) {
	case ipt.DNAT:
		return netip.AddrPort(to)
	case ipt.Jump:
		if chain, ok := m.written.chains.Get(chainName{tableNAT, string(to)}); ok && strings.HasPrefix(string(to), prefixEndpoint) {
			rules := chain.rules()
			return m.endpoint(rules[len(rules)-1].Target)
		}
	}
	return netip.AddrPort{}
}

// read reads the selected counters of one table.
func (m *meter) read(ctx context.Context, table string, packets func(context.Context, string, ...string) (map[string][]uint64, error)) error {
	var names []string
	for in := range m.wanted {
		if in.table == table {
			names = append(names, in.name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	found, err := packets(ctx, table, names...)
	if err != nil {
		return err
	}
	for name, of := range found {
		in := chainName{table, name}
		chain, _ := m.written.chains.Get(in)
		if chain == nil || chain.count != len(of) {
			continue
		}
		for i, rule := range chain.rules() {
			if add := m.wanted[in][rule.Text()]; add != nil {
				add(of[i])
			}
		}
	}
	return nil
}
