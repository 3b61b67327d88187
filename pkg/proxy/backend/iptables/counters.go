package iptables

import (
	"fmt"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

var _ backend.PacketCounter = (*Backend)(nil)

// ruleInvalid drops what conntrack takes for invalid, and counts it.
const ruleInvalid = "-m conntrack --ctstate INVALID -j DROP"

// countLocalhost counts connections to node ports on localhost, and does nothing else. It knows them by where they were for
// at first, and by the mark that the table nat gives to what it translates: only the first packet of a connection bears it.
// Here in the table filter, which is small, the counter can be read often (docs/decisions/0013).
func countLocalhost(mark string) string {
	return comment("node ports on localhost, counted")[1:] + " -m mark --mark " + mark + "/" + mark +
		" -m conntrack --ctorigdst 127.0.0.0/8"
}

// localhostCounter is that rule, where there is anything to count.
func (w *writer) localhostCounter() []line {
	if !w.localnet() {
		return nil
	}
	return []line{{text: countLocalhost(w.mark)}}
}

// InvalidDropped is part of [backend.PacketCounter].
func (b *Backend) InvalidDropped(family cluster.Family) (uint64, error) {
	return b.counted(family, chainName{tableFilter, chainForward}, ruleInvalid)
}

// LocalhostAccepted is part of [backend.PacketCounter].
func (b *Backend) LocalhostAccepted(family cluster.Family) (uint64, error) {
	return b.counted(family, chainName{tableFilter, chainFirewall}, countLocalhost(markOf(b.opts)))
}

// counted is how many packets of a family met a rule, which is found by its place in the chain as it was last written.
func (b *Backend) counted(family cluster.Family, name chainName, rule string) (uint64, error) {
	for _, f := range b.families {
		applied := f.applied.Load()
		if f.is != family || applied == nil {
			continue
		}
		chain, _ := applied.chains.Get(name)
		at := slices.IndexFunc(chain.lines, func(l line) bool { return l.text == rule })
		if at < 0 {
			continue
		}
		packets, err := f.door.Packets(name.table, name.name)
		if err == nil && len(packets) != len(chain.lines) {
			err = fmt.Errorf("iptables %s: chain %s of table %s has %d rules, and was written with %d: %w",
				f.is, name.name, name.table, len(packets), len(chain.lines), ipt.ErrBusy)
		}
		if err != nil {
			return 0, err
		}
		return packets[at], nil
	}
	return 0, nil
}
