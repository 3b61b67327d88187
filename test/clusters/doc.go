// Package clusters creates clusters for tests and benchmarks: as values, of any size or at random, and as manifests.
package clusters
