package backend

import (
	"fmt"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/plan"
)

// RefusedError means that the kernel, or the tool that writes the rules, refuses the rules of some ports of Services. A
// Sync without these ports may succeed.
type RefusedError struct {
	// Ports are those whose rules are refused. There are none if it is not known.
	Ports []plan.Port
	Cause error
}

// Refused wraps an error about the rules of some ports.
func Refused(cause error, ports ...plan.Port) *RefusedError {
	return &RefusedError{Ports: ports, Cause: cause}
}

// Error names the first ports.
func (e *RefusedError) Error() string {
	if len(e.Ports) == 0 {
		return fmt.Sprintf("rules were refused: %v", e.Cause)
	}
	const most = 3
	var names []string
	for _, port := range e.Ports[:min(len(e.Ports), most)] {
		names = append(names, port.String())
	}
	if more := len(e.Ports) - most; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf("the rules of %s were refused: %v", strings.Join(names, ", "), e.Cause)
}

// Unwrap returns the cause.
func (e *RefusedError) Unwrap() error { return e.Cause }

// FirstRefused finds the unit at fault among n that were refused together, by bisection. write writes the units from one
// index to another, which is excluded, as one transaction; refused reports whether its error is a refusal.
//
// It returns the index of the first unit that is refused alone, with the cause; the units before it are written by then.
// The index is n if all units could be written in parts, and -1 if no unit is to blame: the error is not a refusal, or
// the next units are refused like the first. It calls write at most log2(n)+5 times.
func FirstRefused(n int, write func(from, to int) error, refused func(error) bool) (unit int, cause error) {
	written, failing := 0, n // the first unit at fault is in [written, failing)
	for alone := false; written < n && !alone; {
		to := written + (failing-written+1)/2
		err := write(written, to)
		switch {
		case err == nil && to == failing: // writing less at a time was enough
			written, failing = to, n
		case err == nil:
			written = to
		case !refused(err):
			return -1, err
		default:
			alone, failing, cause = to == written+1, to, err
		}
	}
	if written > 0 || n <= probes {
		return written, cause
	}
	for other := 1; other <= probes; other++ {
		if err := write(other, other+1); err == nil {
			return 0, cause
		}
	}
	return -1, cause
}

// probes is the number of units that are tried before a unit is blamed although nothing could be written so far.
const probes = 3
