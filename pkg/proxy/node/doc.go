// Package node compares the node that a proxy runs on with what its configuration needs of it.
//
// Families chooses the address families to serve, once, from the machine and the configuration. Everything else about the
// node may be unknown at the start, may change, and takes effect through cluster.Snapshot.Node. Watch reports what is still
// waited for and warns, once, of what a user may not expect.
package node
