// Package rolling replaces the pods of Services under load, and counts what fails: new connections and those that are kept, through kube-proxy
// in each mode, and through Kubernetes' own with PEER=1 (make rolling). CI runs the short version, without the peer.
//
// Each pod is a network namespace, and goes through what the kubelet and the EndpointSlice controller do: a new pod is ready before an old one
// terminates. With a preStop hook that one serves on for a while; without, it stops to accept connections at once. Either way a TCP
// connection that is kept gets its next answer before the pod closes it, so that a client which opens another one loses nothing.
package rolling
