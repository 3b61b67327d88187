// Package plan is part of an example.
package plan

import (
	"time"

	"k8s.io/klog/v2" // bad: a log
	_ "math/rand/v2" // bad: chance
	_ "net/netip"
	_ "os" // bad: the machine
)

// Compute reads the clock.
func Compute(timeout time.Duration) time.Time {
	klog.Info(timeout)
	now := time.Now // bad: a clock, even if it is only named
	return now().Add(timeout)
}
