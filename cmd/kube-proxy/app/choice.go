package app

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/proxy/backend"
)

// choice is the value of a flag that accepts only a few. It implements pflag.Value.
type choice[T ~string] struct {
	value *T
	of    []T
}

// oneOf returns a flag's value that is one of these, at first the present one.
func oneOf[T ~string](value *T, of ...T) *choice[T] { return &choice[T]{value, of} }

// String returns the value.
func (c *choice[T]) String() string { return string(*c.value) }

// Set parses a value.
func (c *choice[T]) Set(text string) error {
	if !slices.Contains(c.of, T(text)) {
		var names []string
		for _, accepted := range c.of {
			names = append(names, string(accepted))
		}
		last := len(names) - 1
		return fmt.Errorf("must be %s or %s", strings.Join(names[:last], ", "), names[last])
	}
	*c.value = T(text)
	return nil
}

// Type returns the name of the value in the help.
func (*choice[T]) Type() string { return "level" }

// counterLevel is what the rules count, or auto, which lets the memory decide.
type counterLevel string

const autoCounters counterLevel = "auto"

// countings are the values that set what is counted.
func countings() []backend.Counting {
	return []backend.Counting{backend.CountEndpoints, backend.CountServices, backend.CountNothing}
}

// counterLevels are all of them.
func counterLevels() []counterLevel {
	all := []counterLevel{autoCounters}
	for _, of := range countings() {
		all = append(all, counterLevel(of.String()))
	}
	return all
}
