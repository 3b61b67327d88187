package iptables

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
)

// applier writes one patch through the door.
type applier struct {
	ctx      context.Context
	door     ipt.Tables
	writer   *writer
	settings Settings
	// stuck are chains that could not be deleted since a rule of somebody else's goes to them; each is told of once.
	stuck map[chainName]bool

	rules int
}

// refusal tells that iptables does not take what there is for one port of a Service.
type refusal struct {
	owner string
	cause error
}

func (e *refusal) Error() string {
	return fmt.Sprintf("the rules of %s are refused, and left out: %v", e.owner, e.cause)
}

func (e *refusal) Unwrap() error { return e.cause }

// apply writes the patch. Every transaction on the way leaves a correct dataplane. Between the tables that means: what
// is refused in the filter table begins before the nat table lets go of it, and ends after the nat table took it up.
func (a *applier) apply(p *patch) error {
	if err := a.unhook(p.retired()); err != nil { // or their chains could not be deleted
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
	if p.localnet {
		if err := guardLocalnet(a.door, a.writer); err != nil {
			return err
		}
	}
	if err := a.hook(p.jumps); err != nil || !p.localnet {
		return err
	}
	return routeLocalnet(a.settings)
}

// hook puts jumps into the built-in chains, after all that they lead to.
func (a *applier) hook(jumps []jump) error {
	for _, j := range jumps {
		if err := a.door.Insert(j.from.table, j.from.name, j.rule()...); err != nil {
			return err
		}
		a.rules++
	}
	return nil
}

// unhook takes jumps out of the built-in chains. One that cannot be does not keep the others.
func (a *applier) unhook(jumps []jump) error {
	var failed []error
	for _, j := range jumps {
		failed = append(failed, a.door.Delete(j.from.table, j.from.name, j.rule()...))
	}
	return errors.Join(failed...)
}

// write makes and rewrites chains, and deletes those that nothing goes to after that, in as few transactions as the
// variant takes well.
func (a *applier) write(table string, writes []write, deletes []string) error {
	for len(writes) > 0 {
		n := a.chunk(writes)
		last := n == len(writes) && len(deletes) > 0 && len(deletes) <= a.writer.capabilities.chunk
		var gone []string
		if last {
			gone = deletes
		}
		err := a.restore(table, writes[:n], gone)
		if err != nil && last {
			// It may be the deletion: a chain that somebody else's rule goes to cannot be deleted.
			err, last = a.restore(table, writes[:n], nil), false
		}
		if err != nil {
			if err := a.isolate(table, writes[:n], err); err != nil {
				return err
			}
		}
		if last {
			return nil
		}
		writes = writes[n:]
	}
	return a.remove(table, deletes)
}

// linesPerUnit is how many lines a unit has that counts once.
const linesPerUnit = 4

// chunk is how many of the writes go into the next transaction: units whole.
func (a *applier) chunk(writes []write) int {
	units, lines := 1, 0
	for i := range writes {
		if i > 0 && writes[i].unit != writes[i-1].unit {
			if units == a.writer.capabilities.chunk || lines > linesPerUnit*a.writer.capabilities.chunk {
				return i
			}
			units++
		}
		lines += len(writes[i].lines)
	}
	return len(writes)
}

// restore is one transaction.
func (a *applier) restore(table string, writes []write, deletes []string) error {
	var b strings.Builder
	rules := 0
	fmt.Fprintf(&b, "*%s\n", table)
	for _, w := range writes {
		fmt.Fprintf(&b, ":%s - [0:0]\n", w.name)
	}
	for _, name := range deletes {
		fmt.Fprintf(&b, ":%s - [0:0]\n", name)
	}
	for _, w := range writes {
		for _, l := range w.lines {
			b.WriteString("-A " + w.name + " " + l.text + "\n")
		}
		rules += 1 + len(w.lines)
	}
	for _, name := range deletes {
		fmt.Fprintf(&b, "-X %s\n", name)
	}
	b.WriteString("COMMIT\n")
	err := a.door.Restore(a.ctx, b.String())
	if err == nil {
		a.rules += rules + len(deletes)
	}
	return err
}

// isolate finds out which port of a Service a transaction was refused for, and writes what can be written of it.
func (a *applier) isolate(table string, writes []write, cause error) error {
	var refused *ipt.RestoreError
	if !errors.As(cause, &refused) {
		return cause // for no line's sake: a lock, a program that is missing
	}
	units := split(writes)
	owner, at := ownerOf(units, refused.Text)
	if len(units) == 1 {
		if owner == "" {
			owner = soleOwner(writes)
		}
		if owner == "" {
			return cause
		}
		return &refusal{owner, cause}
	}
	if at >= 0 { // though the program may blame the line after
		if err := a.restore(table, units[at], nil); err != nil {
			return a.isolate(table, units[at], err)
		}
	}
	for _, half := range [][][]write{units[:len(units)/2], units[len(units)/2:]} {
		part := slices.Concat(half...)
		if err := a.restore(table, part, nil); err != nil {
			return a.isolate(table, part, err)
		}
	}
	return nil
}

// split parts writes into units.
func split(writes []write) [][]write {
	var units [][]write
	for i, w := range writes {
		if i == 0 || w.unit != writes[i-1].unit {
			units = append(units, nil)
		}
		units[len(units)-1] = append(units[len(units)-1], w)
	}
	return units
}

// ownerOf finds whose line the program blames, and in which unit it is; -1 is none.
func ownerOf(units [][]write, text string) (owner string, unit int) {
	for at, writes := range units {
		for _, w := range writes {
			for _, l := range w.lines {
				if text == "-A "+w.name+" "+l.text {
					return l.owner, at
				}
			}
		}
	}
	return "", -1
}

// soleOwner is whose all lines are.
func soleOwner(writes []write) string {
	owner := ""
	for _, w := range writes {
		for _, l := range w.lines {
			if owner != "" && l.owner != owner || l.owner == "" {
				return ""
			}
			owner = l.owner
		}
	}
	return owner
}

// remove deletes chains; one that somebody else's rule goes to is left, empty, and told of once.
func (a *applier) remove(table string, names []string) error {
	for len(names) > 0 {
		n := min(len(names), a.writer.capabilities.chunk)
		if err := a.removeSome(table, names[:n]); err != nil {
			return err
		}
		names = names[n:]
	}
	return nil
}

func (a *applier) removeSome(table string, names []string) error {
	err := a.restore(table, nil, names)
	var refused *ipt.RestoreError
	if err == nil || !errors.As(err, &refused) {
		return err
	}
	if len(names) > 1 {
		half := len(names) / 2
		// Chains that go to each other are emptied first, or neither half could be deleted.
		if err := a.restore(table, emptied(names), nil); err != nil {
			return err
		}
		if err := a.removeSome(table, names[:half]); err != nil {
			return err
		}
		return a.removeSome(table, names[half:])
	}
	name := chainName{table, names[0]}
	if !a.stuck[name] {
		a.stuck[name] = true
		klog.FromContext(a.ctx).Info("A chain of an earlier Service cannot be deleted, since a rule of another program goes to it; it is left empty",
			"table", table, "chain", names[0], "err", err)
	}
	return a.restore(table, emptied(names), nil)
}

// emptied are the writes that take all rules out of chains.
func emptied(names []string) []write {
	var writes []write
	for _, name := range names {
		writes = append(writes, write{name: name, unit: name})
	}
	return writes
}
