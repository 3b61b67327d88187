// Package netns is part of an example.
package netns

import (
	_ "house.test/pkg/proxy/plan" // bad: the laboratory knows nothing of ours
)
