// Package proxy is part of an example.
package proxy

import (
	_ "k8s.io/component-base/featuregate" // bad: gates are read in cmd
	_ "k8s.io/kube-proxy/config/v1alpha1" // bad: options are small structs
)
