// Package view keeps the State (package status) of a running proxy, and serves it over HTTP.
//
//	observer.go  keeps the State, and history.go the last hour
//	compare.go   compares with the kernel's rules while syncs go on
//	handler.go   the HTTP API; stream.go its list of Services, which may be long
//
// Everything is computed on request: during a sync the observer only records which Services changed. The running proxy answers because
// the kernel alone has neither names nor reasons, and over HTTP because the host cannot reach a socket in a pod's mount namespace. Metrics
// are often served on every address, so the API is for clients on the same machine only, and checks the Host header (DNS rebinding).
package view
