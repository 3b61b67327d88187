// Package manifests is part of an example.
package manifests

import (
	_ "k8s.io/api/core/v1"
	_ "k8s.io/client-go/rest" // bad: only the other source
)
