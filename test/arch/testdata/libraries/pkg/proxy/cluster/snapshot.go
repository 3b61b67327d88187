// Package cluster is part of an example.
package cluster

import (
	_ "k8s.io/api/core/v1" // bad: not the builder
)
