// Package plan is part of an example.
package plan

import (
	_ "k8s.io/api/core/v1"
)
