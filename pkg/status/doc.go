// Package status says what a proxy does with a snapshot and its plan, as the objects of the API (package v1alpha1) and in words. The server
// of a running proxy and the commands import it, and neither imports the other.
//
//	state.go     a State: a snapshot with its plan, and what else is known; everything else is a function of it
//	service.go   Services with addresses, endpoints and problems
//	digests.go   what is known of Services, in short
//	missing.go   the error for a Service that is not served
//	question.go  the source and destination of a connection
//	explain.go   the explanation of one connection
//	open.go      the open connections by Service and endpoint
//	rules.go     the rules of the plan, and where the kernel's differ
//	text.go      words for the parts of objects
package status
