package iptables

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
)

// Present reports whether either variant of iptables holds rules of this mode, by whatever program.
func Present(ctx context.Context) (bool, error) {
	holding, err := ipt.Holding(ctx, []string{tableNAT}, func(table, chain string) bool {
		return strings.HasPrefix(chain, prefixCluster) || chain == chainServices
	})
	return len(holding) > 0, err
}

// cleanup removes one family's chains and jumps. What cannot be removed does not keep the rest from it, and is told.
func (f *family) cleanup(ctx context.Context) error {
	have, err := read(ctx, f.door, f.is)
	if err != nil {
		return err
	}
	// What is shared with the kubelet stays: the chain KUBE-FIREWALL and the jumps to it.
	want := &ruleset{family: f.is}
	stale := diff(have, want)
	a := &applier{ctx: ctx, door: f.door, writer: &writer{capabilities: f.can}, stuck: map[chainName]bool{}}
	failed := []error{a.unhook(stale.strays)}
	for _, table := range tables() {
		failed = append(failed, a.remove(table, stale.deletes[table]))
	}
	for name := range a.stuck {
		failed = append(failed, fmt.Errorf("iptables %s: chain %s of table %s is still there, empty: a rule of another program goes to it; delete that first",
			f.is, name.name, name.table))
	}
	return errors.Join(failed...)
}
