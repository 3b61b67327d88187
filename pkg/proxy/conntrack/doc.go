// Package conntrack sees to it that a UDP flow is not sent to an endpoint that is gone. The kernel translates the
// first packet of a flow by the rules, and all later ones as it did that one, for as long as any come: a client that
// keeps its socket would talk to nobody for hours. A Reconciler, an observer of the proxy's loop, takes such entries
// out of the kernel's table after the rules have changed, so that the next packet is a first one again.
//
// What stays: flows of TCP and SCTP, whose ends find out by themselves and which may want to finish; flows of UDP to
// an endpoint that still serves, whatever policies and hints say of new ones; flows that are for no Service.
package conntrack
