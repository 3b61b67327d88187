// Package manifests tests the manifests of build/manifests and the Helm chart of build/charts without running anything: both
// are rendered by the libraries that kubectl and helm render with, give the same objects, and a real API server accepts each of
// these.
//
// It is a module of its own, because it needs libraries that the program does not.
package manifests
