// Package view shows what the proxy does: it turns the snapshot and the plan in force, and the kernel's counters, into the
// objects of the API (package v1alpha1), and serves these over HTTP.
//
//	state.go     a State: a snapshot with its plan, and what else is known; everything else is a function of it
//	service.go   Services with addresses, endpoints and problems
//	question.go  what /explain is asked
//	explain.go   the explanation of one connection
//	rules.go     the rules of the plan, and where the kernel's differ
//	observer.go  keeps the State of a running proxy
//	handler.go   the HTTP API
//
// Nothing is computed before somebody asks: a sync costs the observer what it costs to note which Services changed.
package view
