// Package view shows what the proxy does: it turns the snapshot and the plan in force, and the kernel's counters, into the
// objects of the API (package v1alpha1), and serves these over HTTP.
//
//	state.go     a State: a snapshot with its plan, and what else is known; everything else is a function of it
//	service.go   Services with addresses, endpoints and problems
//	missing.go   the error for a Service that is not served
//	question.go  the query of /explain
//	explain.go   the explanation of one connection
//	rules.go     the rules of the plan, and where the kernel's differ
//	stream.go    the list of Services, which may be long
//	observer.go  keeps the State of a running proxy, and history.go its last hour
//	handler.go   the HTTP API; guard.go restricts it to local clients
//
// Everything is computed on request: during a sync the observer only records which Services changed.
package view
