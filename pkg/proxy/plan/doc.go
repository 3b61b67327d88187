// Package plan decides what happens to every packet that is meant for a Service: each traffic decision of
// the proxy is made here, once, for both address families and whatever backend renders it.
//
// Compute is a pure function from a cluster.Snapshot and Options to a Plan. A Plan says, for each frontend
// (an address, protocol and port that a packet can meet), which pool of endpoints it is sent to, how, and
// why. Explain follows one packet through a Plan; it is the reference that backends are tested against.
package plan
