// Package features defines the proxy's feature gates with their stages and defaults. Gates are read once, at start, into
// a plain struct. Packages below cmd/kube-proxy do not read gates but have options.
package features
