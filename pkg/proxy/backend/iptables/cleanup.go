package iptables

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// cleanup removes one family's chains and hooks. What cannot be removed does not keep the rest, and is reported. What is
// shared with the kubelet stays: the chain KUBE-FIREWALL and the jumps to it.
func cleanup(ctx context.Context, door ipt.Tables, family cluster.Family, can capabilities) error {
	have, err := read(ctx, door)
	if err != nil {
		return err
	}
	stale := diff(have, &ruleset{})
	a := &applier{ctx: ctx, door: door, writer: &writer{capabilities: can}, stuck: map[chainName]bool{}}
	failed := []error{a.unhook(stale.strays)}
	for _, table := range tables() {
		failed = append(failed, a.remove(table, stale.deletes[table]))
	}
	for name := range a.stuck {
		failed = append(failed, fmt.Errorf("iptables %s: chain %s of table %s is still there, empty: a rule of another program goes to it; delete that first",
			family, name.name, name.table))
	}
	return errors.Join(failed...)
}
