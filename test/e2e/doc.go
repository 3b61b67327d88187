// Package e2e drives bin/kube-proxy through a real API server: kube-apiserver and etcd, built from their
// modules, with TLS and RBAC, on the loopback of a laboratory node (test/netns).
//
// It is a module of its own so that the product's go.mod stays lean; the servers are pinned in a third one,
// in the folder servers, which holds no code. They are built when first needed, which takes some minutes on
// two cores, and kept in the user's cache, keyed by version. So is Kubernetes' own kube-proxy, for test/bench.
//
// The tests write Services and EndpointSlices through client-go, as a cluster's controllers would, and ask
// with packets what became of them.
package e2e
