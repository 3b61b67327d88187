// Package page serves the status page of a running proxy: HTML for people at / of the metrics address, and a page for each
// Service. The server searches, sorts and draws, so the pages work without JavaScript; the little there is only replaces parts
// of the page with newer ones. A page needs nothing from elsewhere, and its Content-Security-Policy lets it load nothing.
//
//	page.html      the templates; template.go executes them, and escapes every value: names come from users of the cluster
//	page.go        the pages, and the top of each
//	overview.go    the page at /, with list.go and chart.go
//	service.go     the page of a Service
//	meter.go       connections per second, from readings that many pages share
//	text.go        numbers, and the functions of the templates
package page
