package backend

import (
	"fmt"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// RefusedError means that the kernel, or the program that writes the rules, refuses the rules themselves. Other errors, such as missing
// rights, memory or time, do not depend on the rules.
type RefusedError struct {
	// Ports are those whose rules were to be written, each once, in no order. If a port is the cause, it is one of them.
	Ports []plan.Port
	Cause error
}

func (e *RefusedError) Error() string { return fmt.Sprintf("rules were refused: %v", e.Cause) }

// Unwrap returns the cause.
func (e *RefusedError) Unwrap() error { return e.Cause }

// InParts writes n units in order: all in one transaction, or, if that is too large, in halves. write writes the units from one index up
// to another, which is excluded.
func InParts(n int, write func(from, to int) error, tooLarge func(error) bool) error {
	var part func(from, to int) error
	part = func(from, to int) error {
		err := write(from, to)
		if to-from < 2 || !tooLarge(err) {
			return err
		}
		half := from + (to-from)/2
		if err := part(from, half); err != nil {
			return err
		}
		return part(half, to)
	}
	return part(0, n)
}
