// Package plan decides how traffic to Services is handled. All policy is here, for both address families and all
// backends.
//
// Compute is a pure function from a cluster.Snapshot and Options to a Plan. A Plan maps each frontend (address,
// protocol and port) to the pool of endpoints that its connections are sent to, and records the reason. Explain
// traces one packet through a Plan; backends are tested against it. Advance computes a Plan that includes only a part of
// the changes since an earlier one, so that expensive changes can be programmed in parts.
package plan
