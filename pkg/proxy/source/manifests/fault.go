package manifests

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Fault is an error in a line of a file.
type Fault struct {
	File string
	Line int // the first line is 1
	Err  error
}

func (f *Fault) Error() string { return fmt.Sprintf("%s:%d: %v", f.File, f.Line, f.Err) }

func (f *Fault) Unwrap() error { return f.Err }

// maxFaults is the maximum number of faults that are reported for a file.
const maxFaults = 10

// join joins faults into one error, in the order of lines.
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
