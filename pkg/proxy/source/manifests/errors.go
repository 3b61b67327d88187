package manifests

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Error is an error in a line of a file.
type Error struct {
	File string
	Line int // the first line is 1; 0 if the error concerns no single line
	// Object is the object in whose fields the error is, in File.Refused.
	Object Key
	Err    error
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %v", e.File, e.Err)
	}
	return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// maxErrors is the maximum number of errors that are reported for a file.
const maxErrors = 10

// join joins the errors of a file, in the order of lines.
func join(errs []*Error) error {
	if len(errs) == 0 {
		return nil
	}
	slices.SortStableFunc(errs, func(a, b *Error) int { return cmp.Compare(a.Line, b.Line) })
	var all []error
	for i, err := range errs {
		if i == maxErrors {
			all = append(all, fmt.Errorf("%s: %d more errors", err.File, len(errs)-maxErrors))
			break
		}
		all = append(all, err)
	}
	return errors.Join(all...)
}
