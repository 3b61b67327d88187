// Package health is part of an example.
package health

import (
	"sync"
	"testing"

	"house.test/test/netns"
)

func TestMain(m *testing.M) {}

func TestKernelAnswers(t *testing.T) {}

func TestAnswers(t *testing.T) {} // bad: needs root and does not say so

func helper(t *testing.T) {}

func TestKernelInside(t *testing.T) {
	var host netns.Host
	_ = host.Do(func() error {
		t.Run("sub", func(t *testing.T) {}) // bad: on another thread
		return nil
	})
	t.Run("sub", func(t *testing.T) { _ = host.Do(func() error { return nil }) })
	new(sync.Once).Do(func() { t.Run("sub", func(t *testing.T) {}) })
}
