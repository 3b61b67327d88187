// Package conntrack deletes entries of the kernel's connection tracking that keep clients from their Services. The kernel
// translates the first packet of a flow by the rules, and all later ones as it did that one. A Reconciler, an observer
// of the proxy's loop, deletes two kinds of entries after the rules have changed, so that the next packet is a first one
// again:
//
//   - UDP flows to an endpoint that is gone, or to a Service address from before it was served. A client that keeps
//     its socket would talk to nobody for as long as it goes on.
//   - TCP connections that were begun before their Service was served: the first SYN met no rule, and each SYN that the
//     client sends again meets its entry. The client would hang until its connection attempt times out, two minutes.
//
// All else stays: established TCP connections, and all of SCTP, whose ends notice by themselves; UDP flows to an endpoint
// that still serves, whatever policies and hints say of new ones; flows that are for no Service.
package conntrack
