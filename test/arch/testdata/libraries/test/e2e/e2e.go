// Package e2e is part of an example.
package e2e

import (
	_ "k8s.io/client-go/kubernetes"
)
