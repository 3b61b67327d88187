package iptables

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// Counters is part of [backend.Backend].
func (b *Backend) Counters() backend.KernelCounters {
	return backend.KernelCounters{Connections: b, InvalidDropped: b.invalidDropped, LocalhostAccepted: b.localhostAccepted, Names: backend.MetricNames{
		SyncFailures:        "sync_proxy_rules_iptables_restore_failures_total",
		PartialSyncFailures: "sync_proxy_rules_iptables_partial_restore_failures_total",
		TableRules:          "sync_proxy_rules_iptables_total",
		TableRulesWritten:   "sync_proxy_rules_iptables_last",
		InvalidDropped:      "iptables_ct_state_invalid_dropped_packets_total",
		LocalhostAccepted:   "iptables_localhost_nodeports_accepted_packets_total",
	}}
}

func (b *Backend) invalidDropped(family cluster.Family) (uint64, error) {
	return b.counted(family, chainName{tableFilter, chainForward}, invalidRule())
}

func (b *Backend) localhostAccepted(family cluster.Family) (uint64, error) {
	return b.counted(family, chainName{tableFilter, chainFirewall}, localhostRule(b.opts.Mark))
}

// counted returns, by family, the number of packets that matched a rule. The rule's index in the chain is that of the
// last write.
func (b *Backend) counted(family cluster.Family, name chainName, rule ipt.Rule) (uint64, error) {
	f, written := b.written(family)
	if written == nil {
		return 0, nil
	}
	chain, _ := written.chains.Get(name)
	at := slices.IndexFunc(chain.rules(), rule.Equal)
	if at < 0 {
		return 0, nil
	}
	packets, err := f.door.Packets(context.Background(), name.table, name.name)
	if err == nil && len(packets[name.name]) != chain.count {
		err = fmt.Errorf("iptables %s: chain %s of table %s has %d rules, and was written with %d: %w",
			family, name.name, name.table, len(packets[name.name]), chain.count, ipt.ErrBusy)
	}
	if err != nil {
		return 0, err
	}
	return packets[name.name][at], nil
}

// written returns a family with what its last Sync wrote; nil before one.
func (b *Backend) written(is cluster.Family) (*family, *rendering) {
	for _, f := range b.families {
		if f.is == is {
			return f, f.written.Load()
		}
	}
	return nil, nil
}
