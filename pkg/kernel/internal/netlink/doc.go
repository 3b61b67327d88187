// Package netlink contains what the packages below pkg/kernel share to talk to netfilter: building and reading messages,
// requests and dumps, retrying interrupted reads, error texts, and waiting for packets.
//
// It contains no commands, attributes or meanings of a single subsystem. Buffers are reused and no message is copied, so
// what a callback gets is valid until it returns. docs/decisions/0016 explains why this is not a library.
//
// Layouts and numbers are those of the kernel's headers:
//
//   - linux/netlink.h: struct nlmsghdr, struct nlattr, NLM_F_*, NLMSG_*, NLMSGERR_ATTR_*
//   - linux/netfilter/nfnetlink.h: struct nfgenmsg, NFNL_SUBSYS_*, NFNL_MSG_BATCH_*, NFNLGRP_*
//   - linux/membarrier.h: MEMBARRIER_CMD_GLOBAL
//
// Headers are in the byte order of the host, and the values of netfilter's attributes in network order.
package netlink
