// Package node compares the node that a proxy runs on with what the configuration needs.
//
// Families chooses the address families to serve, once, from the machine and the configuration. Everything else about the
// node may be unknown at the start, may change, and takes effect through cluster.Snapshot.Node. Watch reports what the
// proxy still waits for, and warns once of each state that a user may not expect.
package node
