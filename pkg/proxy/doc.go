// Package proxy is a node's service proxy: a pipeline of pure functions with I/O at both ends. Read this first.
//
//		 API server ─┐
//		             ├─ source ──► cluster.Snapshot ──► plan.Plan ──► ruleset ──► patch ──► kernel
//		 manifests ──┘                                      │
//		                                                    └─► observers: health, conntrack, metrics ...
//
//	  - A source (package source) watches Kubernetes objects and passes them to a cluster.Builder. Later stages do
//	    not use Kubernetes objects.
//	  - cluster.Snapshot is the state of Services, endpoints and this node. It is immutable. Two snapshots share
//	    everything that is equal, so that finding the differences does not require a full comparison.
//	  - plan.Compute decides how packets to Services are handled, and records the reason. It contains all policy,
//	    for both address families and for every backend. It is pure: options are an argument, and it neither logs
//	    nor reads the clock.
//	  - A backend (package backend) renders the plan as rules, computes the difference to the kernel's state, and
//	    writes it through a package below pkg/kernel.
//	  - Observers are notified of every sync, with the plan that was programmed.
//
// The words: a frontend is an address, protocol and port that a packet can be sent to. An endpoint is where it may be sent
// to. A pool is the list of endpoints that a frontend uses under one traffic policy. A fence is the limits of a Service's
// connections (docs/limits.md). A backend is iptables or nftables, never an endpoint. A keeper keeps one family's rules equal to plans,
// whatever other programs write there. A door is a package below pkg/kernel; those that the running proxy writes through have a fake
// that refuses what the kernel would refuse. A part is as much of an expensive change as one plan includes; Services with such changes
// take turns: each turn is one part.
//
// The stages keep no history. Incremental work is a cache of these functions, keyed by Service: without it the result is
// the same and takes longer. A full resync writes the difference to the kernel's actual state. Only an expensive change of a
// Service takes several plans (plan.Advance): each is right by itself, and records what it does not include yet.
//
// Proxy, in proxy.go, waits until the sources are complete, while the backend reads the kernel's state. Then it passes
// one snapshot after another through the pipeline. pace.go limits how often, parts.go how much of an expensive change at
// once. When a sync fails, the rules in the kernel stay as they are, and the next sync reads the kernel before it writes.
// If the kernel refuses rules of one Service, quarantine.go programs all the others.
//
// To follow one behaviour from objects to packets, open a file of test/cases. ARCHITECTURE.md shows where everything else
// is, and which package may import which.
package proxy
