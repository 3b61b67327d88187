// Package faults tests what the proxy does when the kernel refuses rules, or when reading and writing them fails: with fakes
// of the doors that fail on request, in both modes, and with real kernels.
package faults
