// Package features holds the proxy's feature gates: which there are, their stage and default, and the plain value that
// they are read into once, at start. Nothing below cmd/kube-proxy sees a gate; it gets options.
package features
