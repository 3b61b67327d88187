// Package node prepares the node that a proxy runs on, and compares it with what the configuration needs.
//
// Tuner adjusts the limits and timeouts of connection tracking, and functions adjust this process: its OOM score and memory limit.
//
// Services are served whether or not it succeeds: a node without these settings mostly works, one without rules does not. Kubernetes'
// kube-proxy exits, and nodes crash-loop on RHEL 10, where the files do not exist until the module is loaded (kops#17915). Here a
// setting that does not exist yet is written after the first sync, whose rules load the module; one that only the machine's first network
// namespace can change, as in kind, is logged. A larger limit, or number of buckets, stays: an administrator has set it.
//
// Families chooses the address families to serve, once, from the machine and the configuration. Everything else about the
// node may be unknown at the start, may change, and takes effect through cluster.Snapshot.Node. Watch reports what the
// proxy still waits for, and warns once of each state that a user may not expect.
package node
