// Package netns is part of an example.
package netns

// Host is a network namespace.
type Host struct{}

// Do runs f in the namespace.
func (h *Host) Do(f func() error) error { return f() }
