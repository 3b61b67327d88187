// Package netlock is a lock on the network namespace: of all kube-proxies in one, whatever their mount and process
// namespaces, one at a time holds it, and only that one writes rules.
//
// The lock is a listening abstract unix socket (unix(7)). Its name belongs to the network namespace, so that pods with
// hostNetwork meet each other and the host's own processes, which they would not by a file. The kernel frees the name when
// the holder ends, however it ends. A process that waits keeps a connection to the holder open: the holder says over it who
// it is, and the connection breaks when the holder ends, so that the wait needs no polling.
//
// An abstract name has no permissions. Therefore a holder of another user than the caller's own counts as an error, not as
// a lock: no unprivileged process can keep a node from being served.
package netlock
