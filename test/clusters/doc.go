// Package clusters makes clusters for tests and benchmarks, as values: of any size, and at random.
package clusters
