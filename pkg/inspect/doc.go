// Package inspect implements the commands that show what a proxy does: it reads from a running proxy, or without one from
// objects, and prints text.
//
//	reader.go    the Reader interface
//	client.go    a Reader of a running proxy, over its API
//	local.go     a Reader of objects from files or a cluster
//	print.go     the Printer of texts, and formats that several commands use
//	list.go      service list
//	describe.go  service describe
//	rates.go     connections per second, from two readings
//	watch.go     --watch
//	wait.go      repeats a question until the answer is right
//	drain.go     drain: open connections
//	rules.go     render and drift
//	explain.go   explain
//	pods.go      the addresses of the pods that explain names
//	try.go       explain --try: real connections, compared with the explanation
package inspect
