// Package view keeps the State (package status) of a running proxy, and serves it over HTTP: to programs as the API, and to people as the
// status page at / of the metrics address, with a page for each Service.
//
//	observer.go    keeps the State, and history.go the last hour
//	compare.go     compares with the kernel's rules while syncs go on
//	handler.go     the HTTP API; stream.go its list of Services, which may be long
//	page.html      the templates; template.go executes them, and escapes every value: names come from users of the cluster
//	page.go        the pages, and the top of each
//	overview.go    the page at /, with list.go and chart.go
//	service.go     the page of a Service
//	meter.go       connections per second, from readings that many pages share
//	text.go        numbers, and the functions of the templates
//
// Everything is computed on request: during a sync the observer only records which Services changed. The server searches, sorts and draws, so
// the pages work without JavaScript; the little there is only replaces parts of the page with newer ones. A page needs nothing from elsewhere,
// and its Content-Security-Policy lets it load nothing.
//
// The running proxy answers because
// the kernel alone has neither names nor reasons, and over HTTP because the host cannot reach a socket in a pod's mount namespace. Metrics
// are often served on every address, so the API is for clients on the same machine only, and checks the Host header (DNS rebinding).
package view
