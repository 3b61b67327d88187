// Package netlock is a lock on the network namespace: it lets one kube-proxy at a time write rules, in whatever mount
// and process namespaces others run.
//
// The lock is a group of NFLOG (linux/netfilter/nfnetlink_log.h) that this process has bound. Like the rules, a group belongs
// to the network namespace. The kernel binds it for one netlink socket only, refuses that to processes without CAP_NET_ADMIN
// in the user namespace that owns the network namespace, and frees it when the socket's process ends for any reason.
// No rule logs to the group.
//
// A process that waits asks the holder who it is by multicast, and the holder answers in the same way. The kernel lets only processes
// with CAP_NET_ADMIN send to other processes by NETLINK_NETFILTER (netlink(7)), and receive its multicasts, so that no other can
// ask, answer or listen.
package netlock
