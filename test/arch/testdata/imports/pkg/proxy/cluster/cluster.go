// Package cluster is part of an example.
package cluster

import (
	_ "house.test/pkg/features" // bad: against the stream
)
