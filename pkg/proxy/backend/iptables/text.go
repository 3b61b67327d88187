package iptables

import (
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// Render implements [backend.Renderer], in the format of iptables-save and iptables-restore --noflush, for a machine with all
// capabilities.
func (m Mode) Render(p *plan.Plan, family cluster.Family) string {
	r := &renderer{family: family, opts: m.Options, can: capabilities{dropInvalid: true}}
	want := r.render(p, nil)
	var b strings.Builder
	for _, table := range tables() {
		var writes []write
		for name, chain := range want.chains.All() {
			if name.table == table {
				writes = append(writes, write{name: name.name, body: chain.body})
			}
		}
		t := transaction(table, writes, nil)
		for _, h := range want.hooks {
			if h.in.table == table && h.to != chainLocalnet {
				t.Inserted = append(t.Inserted, ipt.ChainRule{Chain: h.in.name, Rule: h.rule})
			}
		}
		b.WriteString(t.Text())
	}
	return b.String()
}
