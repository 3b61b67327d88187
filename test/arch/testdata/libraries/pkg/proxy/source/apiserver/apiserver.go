// Package apiserver is part of an example.
package apiserver

import (
	_ "k8s.io/api/core/v1"
	_ "k8s.io/client-go/kubernetes" // bad: every kind of the API
	_ "k8s.io/client-go/rest"
)
