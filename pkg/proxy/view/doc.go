// Package view keeps the State (package status) of a running proxy, and serves it over HTTP.
//
//	observer.go  keeps the State, and history.go the last hour
//	compare.go   compares with the kernel's rules while syncs go on
//	handler.go   the HTTP API; stream.go its list of Services, which may be long
//
// Everything is computed on request: during a sync the observer only records which Services changed.
package view
