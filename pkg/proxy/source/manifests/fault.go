package manifests

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Fault is what is wrong in a line of a file.
type Fault struct {
	File string
	Line int // the first line is 1
	Err  error
}

func (f *Fault) Error() string { return fmt.Sprintf("%s:%d: %v", f.File, f.Line, f.Err) }

func (f *Fault) Unwrap() error { return f.Err }

// maxFaults is how many faults of a file are told; more would hide the first.
const maxFaults = 10

// join makes one error of faults, in the order of lines.
func join(faults []*Fault) error {
	if len(faults) == 0 {
		return nil
	}
	slices.SortStableFunc(faults, func(a, b *Fault) int { return cmp.Compare(a.Line, b.Line) })
	var all []error
	for i, fault := range faults {
		if i == maxFaults {
			all = append(all, fmt.Errorf("%s: %d more faults", fault.File, len(faults)-maxFaults))
			break
		}
		all = append(all, fault)
	}
	return errors.Join(all...)
}
