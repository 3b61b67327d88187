// Package plan is part of an example.
package plan

import (
	_ "k8s.io/api/core/v1" // bad: values only
	_ "k8s.io/apiserver-like"
)
