// Package proxy is a node's service proxy: a pipeline of pure functions between two ends that touch the
// world. This is the file to read first.
//
//		 API server ─┐
//		             ├─ source ──► cluster.Snapshot ──► plan.Plan ──► ruleset ──► patch ──► kernel door
//		 manifests ──┘                                      │
//		                                                    └─► observers: health, conntrack, metrics ...
//
//	  - A source (package source) learns what the cluster looks like and tells a cluster.Builder. It deals in
//	    Kubernetes objects; nothing after it does.
//	  - cluster.Snapshot is a picture of Services, endpoints and this node. It never changes, and two pictures
//	    share what is equal, so that what changed is found without looking at the rest.
//	  - plan.Compute decides what happens to every packet that is meant for a Service, with the reason. All
//	    policy is there, for both address families and for every backend.
//	  - A backend (package backend) renders the plan in its own rule language, works out the difference to what
//	    the kernel holds, and writes that through a door (packages below pkg/kernel).
//	  - Observers are told of every sync: the same decision that the kernel got.
//
// Between the stages nothing remembers what happened. Incremental work is a cache of these functions, keyed by
// Service; taking it away changes the time and never the result, and a full resync is the difference to what
// the kernel really holds.
//
// Proxy, in proxy.go, is the only orchestration: it waits until the sources are complete, and then takes one
// snapshot after another through the pipeline.
package proxy
