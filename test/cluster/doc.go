// Package cluster tests the image in a cluster of three nodes: a lab (test/netns), an API server, etcd and a controller
// manager (test/e2e), and on each node a kubelet of the test's own, which runs the Pods of the DaemonSet with runc
// (test/image) and all other Pods as servers.
//
// The DaemonSet, its ServiceAccount, role and ConfigMap are those of build/manifests. The real DaemonSet controller
// updates it, and the real EndpointSlice controller follows the Pods. Meanwhile Pods, nodes and an external client open
// connections; none may fail.
//
// It is a module of its own, because it needs those of test/e2e and test/image.
package cluster
