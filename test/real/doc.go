// Command real makes a real cluster of two nodes on this machine, by kubeadm init and join, and installs the image in it by the
// documented ways, while connections to Services are made from pods, from nodes and from a machine beside the cluster:
//
//	make real
//
// Nodes move by labels, as the five steps of docs/install.md say, back from one that is worse, and to the end (trial.go). The commands that ask
// the proxies of all nodes have only the rights that docs/fleet.md names (fleet.go). A node joins with the startup taint (taint.go).
//
// Kubernetes' own specs of Services run against it in both modes: those of e2e.test whose names match SPECS, in pods of agnhost, whose
// image is built from its source and this machine's tools (specs.go).
//
// A node is a set of namespaces (network, mounts, processes and others) with containerd, runc and the kubelet; static pods, CNI plugins and
// CoreDNS are the real ones too (node.sh, node.go). Both nodes are in the namespaces of one process, which is the machine beside them. All
// processes, mounts and networks end with it; the control groups and the folder bin/real/run are removed afterwards. What the programs
// logged stays in bin/real/log.
//
// The programs are built from their modules when they are first needed, which takes 20 minutes on two cores, and kept in the user's cache.
// It is a module of its own, which pins containerd, CNI plugins, CoreDNS and helm; test/e2e/servers pins Kubernetes and etcd.
package main
