// Package conntrack deletes connection tracking entries that keep clients from their Services. The kernel applies the NAT
// rules to the first packet of a flow only, and translates all later packets alike. A Reconciler, an observer of the
// proxy's loop, deletes some kinds of entries after the rules have changed, so that the rules apply to the next packet:
//
//   - UDP flows to an endpoint that no longer serves, or to a Service address from before it was served: a client that
//     keeps its socket would never reach an endpoint. And UDP flows that source ranges or a traffic policy now forbid to
//     their client: it would keep what it may no longer open, for as long as it sends.
//   - TCP connections that were started before their Service was served: no rule matched the first SYN, and each
//     retransmitted SYN matches its entry. The client would hang until its connection attempt times out after two minutes.
//   - With the feature gate ResetGoneEndpoints, TCP connections to an endpoint that no EndpointSlice lists any more (Resets), and SCTP
//     associations: each INIT of a client that begins anew from the same port matches the entry, and keeps it alive
//     (kubernetes/kubernetes#101968). It is a gate because the pod may run on, and its associations work.
//
// All other entries are kept: TCP and SCTP to endpoints that are listed, in whatever condition; UDP flows to an endpoint that their
// client may use, even if readiness or hints send new flows elsewhere; and flows that are not for a Service.
//
// Whether a UDP flow stays is one question to the plan, [plan.Plan.Keeps]. A search costs seconds of a processor with 200,000
// entries, so [plan.EndsFlows] and [plan.LosesEndpoints] say which changes of a Service need one.
package conntrack
