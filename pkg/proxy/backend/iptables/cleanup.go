package iptables

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/cluster"
)

// cleanup removes the chains and hooks of one family. It continues after an error, and reports it. The chain
// KUBE-FIREWALL and the jumps to it stay: the kubelet uses them, too, and they are needed as long as route_localnet is set (see noteLocalnet).
func cleanup(ctx context.Context, door ipt.Tables, family cluster.Family, can capabilities) error {
	have, err := read(ctx, door, &ruleset{}, false)
	if err != nil {
		return err
	}
	stale := diff(have, &ruleset{})
	a := &applier{ctx: ctx, door: door, chunk: can.chunk, undeleted: map[chainName]bool{}}
	failed := []error{a.unhook(stale.strays)}
	for _, table := range tables() {
		failed = append(failed, a.remove(table, stale.deletes[table]))
	}
	for _, name := range slices.SortedFunc(maps.Keys(a.undeleted), chainName.Compare) {
		failed = append(failed, fmt.Errorf("iptables %s: chain %s of table %s is still there, empty: a rule of another program goes to it; delete that first",
			family, name.name, name.table))
	}
	return errors.Join(failed...)
}
