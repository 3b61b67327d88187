// Package main is part of an example.
package main

import (
	_ "k8s.io/api/core/v1" // bad: objects end in cluster
	_ "k8s.io/client-go/rest"
	_ "k8s.io/kube-proxy/config/v1alpha1"
)
