package iptables

import (
	"errors"
	"maps"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// isRefused reports whether an error is about the input of iptables-restore, and not for example a lock or a missing
// program.
func isRefused(err error) bool {
	_, refused := errors.AsType[*ipt.RestoreError](err)
	return refused
}

// needing returns the ports of the rules that a patch writes.
func (r *rendering) needing(p *patch) []plan.Port {
	keys, texts, chains := map[portKey]bool{}, map[string]bool{}, map[string]bool{} // of chains of one port, and of rules in others and their names
	for _, writes := range p.writes {
		for _, w := range writes {
			chains[w.name] = true
			if keys[w.unit] = true; w.unit == (portKey{}) {
				for _, rule := range missing(w.body, w.before) {
					texts[rule.Text()] = true
				}
			}
		}
	}
	for _, t := range r.trees {
		for _, e := range t.all() {
			if slices.ContainsFunc(e.body.rules(), func(rule ipt.Rule) bool { return texts[rule.Text()] }) {
				route, _ := r.from.Frontends.Get(e.frontend)
				keys[keyOf(route)] = true
			}
		}
	}
	for key, port := range r.ports.All() {
		if f, bounded := port.fence(); bounded && chains[f.chain()] {
			keys[key] = true
		}
	}
	found := map[plan.Port]bool{}
	for key := range keys {
		if port, ok := r.ports.Get(key); ok {
			found[port.routes[0].Of()] = true
		}
	}
	return slices.Collect(maps.Keys(found))
}
