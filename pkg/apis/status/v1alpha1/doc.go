// Package v1alpha1 holds the objects of the read-only HTTP API of a running proxy (docs/api.md). It is data only: clients
// in other programs may import it.
//
// Fields may be added within a version. A field that is removed, or whose meaning changes, makes a new version.
package v1alpha1
