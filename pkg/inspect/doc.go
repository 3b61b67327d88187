// Package inspect is what the commands that show a proxy's work are made of: readers of a running proxy, or of objects
// where none runs, and the text that they print.
//
//	reader.go    the Reader interface
//	client.go    a Reader of a running proxy, over its API
//	local.go     a Reader of objects from files or a cluster
//	table.go     columns that fit a terminal
//	list.go      service list
//	describe.go  service describe
//	rates.go     connections per second, from two readings
//	watch.go     the same, again and again
//	rules.go     render and drift
//	explain.go   explain
//	packet.go    trace, which package packets makes accounts for
//	try.go       explain --try: real connections, compared with the explanation
package inspect
