// Package cluster is part of an example.
package cluster

import (
	_ "k8s.io/api/core/v1"
	_ "k8s.io/apimachinery/pkg/types"
)
