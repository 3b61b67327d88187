package app

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
)

// autoCounters lets the memory decide what is counted.
const autoCounters = "auto"

// counterLevel is the value of --connection-counters: auto, or what is counted.
type counterLevel string

// levels are the values that set what is counted.
func (counterLevel) levels() []backend.Counting {
	return []backend.Counting{backend.CountEndpoints, backend.CountServices, backend.CountNothing}
}

// String returns the value.
func (l *counterLevel) String() string { return string(*l) }

// Set parses a value.
func (l *counterLevel) Set(text string) error {
	values := []string{autoCounters}
	for _, level := range l.levels() {
		values = append(values, level.String())
	}
	if !slices.Contains(values, text) {
		return fmt.Errorf("must be %s", strings.Join(values, ", "))
	}
	*l = counterLevel(text)
	return nil
}

// Type returns the name of the value in the help.
func (*counterLevel) Type() string { return "level" }
