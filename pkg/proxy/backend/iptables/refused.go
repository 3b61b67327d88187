package iptables

import (
	"errors"
	"fmt"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
)

// refusal means that iptables refuses the rules of one port of a Service, or of none if owner is zero.
type refusal struct {
	owner portKey
	cause error
}

func (e *refusal) Error() string {
	return fmt.Sprintf("the rules of %s are refused: %v", e.owner, e.cause)
}

func (e *refusal) Unwrap() error { return e.cause }

// isRefused reports whether an error is about the input of iptables-restore, and not for example a lock or a missing
// program.
func isRefused(err error) bool {
	_, refused := errors.AsType[*ipt.RestoreError](err)
	return refused
}

// isolate writes what can be written of a transaction that was refused, with restore, up to the first port of a Service at
// fault, which is the error.
func isolate(writes []write, cause error, restore func([]write) error) error {
	if !isRefused(cause) {
		return cause
	}
	units := split(writes)
	part := func(from, to int) error { return restore(slices.Concat(units[from:to]...)) }
	if owner, at := ownerOf(units, cause); at >= 0 && owner != (portKey{}) && part(0, at) == nil {
		if err := part(at, at+1); isRefused(err) { // the program may also blame the next line
			return &refusal{owner, err}
		}
	}
	at, err := backend.FirstRefused(len(units), part, isRefused)
	switch {
	case at == len(units):
		return nil
	case at < 0 && !isRefused(err):
		return err
	case at > 0:
		return isolateLine(units[at], err, restore)
	}
	// Nothing could be written. The next units say little: they may jump to the chains of the first one. A write that no rule can
	// be the reason to refuse tells whether nothing can be written at all, as without memory or without the lock's file.
	if trial := restore([]write{{name: chainTrial}}); trial != nil {
		return fmt.Errorf("nothing can be written, not even an empty chain: %w", trial)
	}
	return isolateLine(units[0], err, restore)
}

// isolateLine finds the port at fault in a unit that is refused alone: that of the line that the program blames, or the
// only one with lines in the unit, or that of the first line that is refused in a chain that is used for nothing else.
func isolateLine(unit []write, cause error, restore func([]write) error) error {
	owner, at := ownerOf([][]write{unit}, cause)
	if at < 0 || owner == (portKey{}) {
		owner = soleOwner(unit)
	}
	if owner != (portKey{}) {
		return &refusal{owner, cause}
	}
	lines := unit[0].body.lines() // a unit with several owners is one chain
	first, err := backend.FirstRefused(len(lines), func(from, to int) error {
		return restore([]write{{name: chainTrial, body: kept(lines[from:to])}})
	}, isRefused)
	if emptied := restore([]write{{name: chainTrial}}); emptied != nil { // the next Sync deletes it
		return errors.Join(cause, emptied)
	}
	if first < 0 || first == len(lines) {
		return &refusal{cause: cause}
	}
	return &refusal{lines[first].owner, err}
}

// split splits writes into units.
func split(writes []write) [][]write {
	var units [][]write
	for i, w := range writes {
		if i == 0 || !w.together(&writes[i-1]) {
			units = append(units, nil)
		}
		units[len(units)-1] = append(units[len(units)-1], w)
	}
	return units
}

// ownerOf finds the port whose line the program blames, and the unit with the line; unit is -1 if there is none.
func ownerOf(units [][]write, cause error) (owner portKey, unit int) {
	refused, _ := errors.AsType[*ipt.RestoreError](cause)
	for at, writes := range units {
		for _, w := range writes {
			for _, l := range w.body.lines() {
				if refused != nil && refused.Text == "-A "+w.name+" "+l.Text() {
					return l.owner, at
				}
			}
		}
	}
	return portKey{}, -1
}

// soleOwner returns the port that owns all lines, if there is one.
func soleOwner(writes []write) (owner portKey) {
	for _, w := range writes {
		for _, l := range w.body.lines() {
			if l.owner == (portKey{}) || owner != (portKey{}) && l.owner != owner {
				return portKey{}
			}
			owner = l.owner
		}
	}
	return owner
}
