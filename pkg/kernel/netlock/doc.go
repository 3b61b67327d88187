// Package netlock is a lock on the network namespace: it lets one kube-proxy at a time write rules, in whatever mount
// and process namespaces others run.
//
// The lock is a listening abstract unix socket (unix(7)). Its name belongs to the network namespace, so that pods with
// hostNetwork and processes of the host share it, unlike a file. The kernel frees the name when the holder ends for any
// reason. A waiting process keeps a connection to the holder open: the holder identifies itself over it, and the
// connection breaks when the holder ends, so that waiting needs no polling.
//
// An abstract name has no permissions. Therefore a holder that is another user's process counts as an error, not as a
// lock: otherwise an unprivileged process could prevent the node from being served.
package netlock
