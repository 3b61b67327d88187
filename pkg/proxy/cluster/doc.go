// Package cluster freezes what the API says into values: Services with their endpoints, this node and the
// ServiceCIDRs, of both address families at once.
//
// A Builder takes Kubernetes objects as they arrive, in any order, and keeps only what a proxy needs of
// them. Snapshot returns an immutable picture of that; two pictures share everything that did not change,
// and Changes finds what did. No k8s.io/api type leaves this package.
package cluster
