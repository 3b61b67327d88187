// Package cluster is part of an example.
package cluster

import (
	_ "house.test/pkg/proxy/plan" // bad: against the stream
)
