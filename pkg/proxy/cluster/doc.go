// Package cluster converts Kubernetes objects into immutable values: Services with their endpoints, this node and
// the ServiceCIDRs, of both address families.
//
// A Builder accepts objects in any order and keeps only the fields that a proxy needs. Its method Snapshot returns
// the current state. Two snapshots share everything that did not change between them, and Changes finds the
// differences. No k8s.io/api type leaves this package.
package cluster
