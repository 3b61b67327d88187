// Package clusters creates clusters as values, for tests and benchmarks: of any size, or at random.
package clusters
