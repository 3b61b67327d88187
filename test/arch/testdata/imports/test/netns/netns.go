// Package netns is part of an example.
package netns

import (
	_ "house.test/pkg/proxy/plan" // bad: netns may import nothing of this module
)
