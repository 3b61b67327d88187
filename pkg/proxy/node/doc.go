// Package node prepares the node that a proxy runs on, and compares it with what the configuration needs.
//
// Tuner adjusts kernel settings, and functions adjust this process: its OOM score and memory limit. Services are served whether or not that
// succeeds (docs/decisions/0009).
//
// Families chooses the address families to serve, once, from the machine and the configuration. Everything else about the
// node may be unknown at the start, may change, and takes effect through cluster.Snapshot.Node. Watch reports what the
// proxy still waits for, and warns once of each state that a user may not expect.
package node
