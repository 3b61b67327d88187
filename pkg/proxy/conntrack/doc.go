// Package conntrack deletes connection tracking entries that keep clients from their Services. The kernel applies the NAT
// rules to the first packet of a flow only, and translates all later packets alike. A Reconciler, an observer of the
// proxy's loop, deletes two kinds of entries after the rules have changed, so that the rules apply to the next packet:
//
//   - UDP flows to an endpoint that no longer serves, or to a Service address from before it was served. A client that
//     keeps its socket would never reach an endpoint.
//   - TCP connections that were started before their Service was served: no rule matched the first SYN, and each
//     retransmitted SYN matches its entry. The client would hang until its connection attempt times out after two minutes.
//
// All other entries are kept: established TCP connections and all SCTP associations, whose peers detect a dead endpoint
// themselves; UDP flows to an endpoint that still serves, even if policies or hints send new flows elsewhere; and flows
// that are not for a Service.
package conntrack
