// Package page serves the status page of a running proxy: HTML for people at / of the metrics address, and a page for each
// Service. The server searches, sorts and draws, so the pages work without JavaScript; the little there is only replaces parts
// of the page with newer ones. A page needs nothing from elsewhere, and its Content-Security-Policy lets it load nothing.
//
// Names of objects come from users of the cluster. writer.put escapes them everywhere.
package page
