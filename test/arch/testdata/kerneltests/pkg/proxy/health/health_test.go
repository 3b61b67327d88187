// Package health is part of an example.
package health

import (
	"testing"

	_ "house.test/test/netns"
)

func TestMain(m *testing.M) {}

func TestKernelAnswers(t *testing.T) {}

func TestAnswers(t *testing.T) {} // bad: needs root and does not say so

func helper(t *testing.T) {}
