// Package fleet asks the proxies of all nodes of a cluster what they serve, through the API server, and compares.
//
//	pods.go     the proxy's pod of each node
//	forward.go  a connection to it through the API server and the kubelet
//	ask.go      the state of one node, whatever runs there
//	compare.go  Services that nodes know differently
//	differences.go  and how they differ
//	worse.go    nodes that are worse than in an earlier report
//	wait.go     waits until all nodes serve the present endpoints of a Service
//	print.go    the report as text
//
// What is compared is what each proxy knows and has programmed (status.State.Digests): which endpoints a node uses differs by design, with
// the traffic policy Local, zones and node ports.
package fleet
