// Package e2e drives bin/kube-proxy through a real API server: kube-apiserver and etcd, built from their
// modules, with TLS and RBAC, on the loopback of a lab node (test/netns).
//
// It is a separate module, so that the product's go.mod stays small; the servers are pinned in a third module
// without code, in the folder servers. They are built when first needed, which takes some minutes on two cores,
// and cached in the user's cache by version, as is Kubernetes' own kube-proxy for test/bench. KUBE_APISERVER names a program of
// another release to run as the API server (make servers).
//
// The tests write Services and EndpointSlices through client-go, like a cluster's controllers, and check the
// result with packets.
package e2e
