package iptables

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
)

// applier writes patches through pkg/kernel/ipt.
type applier struct {
	ctx      context.Context
	door     ipt.Tables
	settings Settings
	// chunk is capabilities.chunk.
	chunk int
	// undeleted are the chains that could not be deleted because a rule of another program uses them. Each is logged once.
	undeleted map[chainName]bool

	// rules counts the rules and chains that were written.
	rules int
}

// apply writes the patch in transactions that each leave a correct dataplane. If the filter table starts to refuse
// connections to a frontend, that is written before the nat table stops to serve it; if it stops to refuse them, after
// the nat table serves it.
func (a *applier) apply(p *patch) error {
	if err := a.unhook(p.retired()); err != nil { // otherwise their chains could not be deleted
		return err
	}
	early, late := p.writes[tableFilter], []write(nil)
	if losses := losing(early); len(p.writes[tableNAT]) > 0 && len(losses) > 0 {
		early, late = both(early), losses
		if !p.gains(tableFilter) {
			early, late = nil, p.writes[tableFilter]
		}
	}
	for _, step := range []struct {
		table   string
		writes  []write
		deletes []string
	}{
		{tableMangle, p.writes[tableMangle], p.deletes[tableMangle]},
		{tableFilter, early, nil},
		{tableNAT, p.writes[tableNAT], p.deletes[tableNAT]},
		{tableFilter, late, p.deletes[tableFilter]},
	} {
		if err := a.write(step.table, step.writes, step.deletes); err != nil {
			return err
		}
	}
	return a.finish(p)
}

// finish writes the jumps to our chains, when all chains exist. Node ports on 127.0.0.0/8 need route_localnet, which
// would expose sockets on localhost to neighbours (CVE-2020-8558), so the rules that block these are written first.
func (a *applier) finish(p *patch) error {
	if p.localnet {
		for _, rule := range localnetRules() {
			if err := a.door.Append(a.ctx, tableFilter, chainLocalnet, rule); err != nil {
				return err
			}
		}
	}
	for _, table := range tables() {
		var missing []ipt.ChainRule
		for _, h := range p.hooks {
			if h.in.table == table {
				missing = append(missing, ipt.ChainRule{Chain: h.in.name, Rule: h.rule})
			}
		}
		if len(missing) == 0 {
			continue
		}
		if err := a.door.Insert(a.ctx, table, missing...); err != nil {
			return err
		}
		a.rules += len(missing)
	}
	if p.localnet {
		return a.routeLocalnet()
	}
	return nil
}

// unhook removes rules from built-in chains. It continues after an error.
func (a *applier) unhook(hooks []hook) error {
	var failed []error
	for _, h := range hooks {
		failed = append(failed, a.door.Delete(a.ctx, h.in.table, h.in.name, h.rule))
	}
	return errors.Join(failed...)
}

// routeLocalnet allows packets to 127.0.0.0/8 to be routed.
func (a *applier) routeLocalnet() error {
	if value, err := a.settings.Read(localnetRouted); err == nil && value == "1" {
		return nil
	}
	if err := a.settings.Write(localnetRouted, "1"); err != nil {
		return fmt.Errorf("node ports on localhost: %w; set it beforehand (--init-only does), or do without them (localhostNodePorts: false)", err)
	}
	return nil
}

// write creates and rewrites chains and then deletes unused ones, in as few transactions as the variant handles well.
func (a *applier) write(table string, writes []write, deletes []string) error {
	for units := split(writes); len(units) > 0; {
		n := a.next(units)
		last := n == len(units) && len(deletes) > 0 && len(deletes) <= a.chunk
		var gone []string
		if last {
			gone = deletes
		}
		err := a.restore(table, slices.Concat(units[:n]...), gone)
		if err != nil && (last || ipt.TooLarge(err)) {
			// A chain that is used by a rule of another program cannot be deleted: try without the deletions. Outside of the initial user
			// namespace several transactions may be needed.
			last, err = false, backend.InParts(n, func(from, to int) error { return a.restore(table, slices.Concat(units[from:to]...), nil) }, ipt.TooLarge)
		}
		if err != nil {
			return a.refused(table, err)
		}
		if last {
			return nil
		}
		units = units[n:]
	}
	return a.remove(table, deletes)
}

// split splits writes into units.
func split(writes []write) (units [][]write) {
	for i := range writes {
		if i == 0 || !writes[i].together(&writes[i-1]) {
			units = append(units, nil)
		}
		unit := &units[len(units)-1]
		*unit = append(*unit, writes[i])
	}
	return units
}

// linesPerUnit is the number of lines of a large unit: of Services with five endpoints, if each has a chain. The kernel visits all
// chains at each transaction, so fewer are better.
const linesPerUnit = 16

// next returns how many of the units belong to the next transaction.
func (a *applier) next(units [][]write) int {
	lines := 0
	for i, unit := range units {
		if i == a.chunk || lines > linesPerUnit*a.chunk {
			return i
		}
		for _, w := range unit {
			lines += w.body.count
		}
	}
	return len(units)
}

// refused returns the error of a transaction with rules for ports. The programs do not say whether they could have written anything at
// all, as without memory or without the lock's file: an empty chain shows that.
func (a *applier) refused(table string, err error) error {
	if !isRefused(err) {
		return err
	}
	if trial := a.restore(table, nil, []string{chainTrial}); trial != nil {
		return fmt.Errorf("nothing can be written, not even an empty chain: %w", trial)
	}
	return &backend.RefusedError{Cause: err}
}

// transaction returns the one that creates or empties chains, fills some, and deletes others.
func transaction(table string, writes []write, deletes []string) *ipt.Transaction {
	t := &ipt.Transaction{Table: table, Deleted: deletes}
	for _, w := range writes {
		t.Chains = append(t.Chains, ipt.Chain{Name: w.name, Rules: w.body.rules()})
	}
	return t
}

// restore writes one transaction.
func (a *applier) restore(table string, writes []write, deletes []string) error {
	err := a.door.Write(a.ctx, transaction(table, writes, deletes))
	if err == nil {
		a.rules += len(writes) + len(deletes)
		for _, w := range writes {
			a.rules += w.body.count
		}
	}
	return err
}

// remove deletes chains. A chain that is used by a rule of another program is left empty.
func (a *applier) remove(table string, names []string) error {
	if len(names) == 0 {
		return nil
	}
	size := a.chunk
	if len(names) <= size {
		err := a.restore(table, nil, names)
		if !isRefused(err) {
			return err
		}
	}
	for some := range slices.Chunk(names, size) { // chains that jump to each other cannot be deleted one by one
		var emptied []write
		for _, name := range some {
			emptied = append(emptied, write{name: name})
		}
		if err := a.restore(table, emptied, nil); err != nil {
			return err
		}
	}
	for some := range slices.Chunk(names, size) {
		if err := a.removeEmpty(table, some); err != nil {
			return err
		}
	}
	return nil
}

func (a *applier) removeEmpty(table string, names []string) error {
	err := a.restore(table, nil, names)
	if !isRefused(err) {
		return err
	}
	if half := len(names) / 2; half > 0 {
		return errors.Join(a.removeEmpty(table, names[:half]), a.removeEmpty(table, names[half:]))
	}
	if name := (chainName{table, names[0]}); !a.undeleted[name] {
		a.undeleted[name] = true
		klog.FromContext(a.ctx).Info("Chain of an earlier Service not deleted; a rule of another program goes to it, so it stays empty",
			"table", table, "chain", name.name, "err", err)
	}
	return nil
}
