// Package netlink contains what the packages below pkg/kernel share to talk to netfilter: building and reading messages,
// requests and dumps, retrying interrupted reads, error texts, and waiting for packets.
//
// It contains no commands, attributes or meanings of a single subsystem. Buffers are reused and no message is copied, so
// what a callback gets is valid until it returns.
//
// It is our own because libraries are slower: github.com/google/nftables reads a map of 45,000 elements in 1.1 to 1.2 s, with 113 MB,
// instead of 0.10 to 0.17 s, with 24 KB (it reads into small buffers, and the kernel walks over all elements for each chunk);
// vishvananda/netlink/nl sweeps 200,000 conntrack entries in 4.5 to 5.3 s instead of 1.9 to 2.2 s (TestKernelLargeTable), and can neither
// send a batch nor return an error for each message. Tests compare our encoding with nft's (TestKernelRulesAsText).
//
// Layouts and numbers are those of the kernel's headers:
//
//   - linux/netlink.h: struct nlmsghdr, struct nlattr, NLM_F_*, NLMSG_*, NLMSGERR_ATTR_*
//   - linux/netfilter/nfnetlink.h: struct nfgenmsg, NFNL_SUBSYS_*, NFNL_MSG_BATCH_*, NFNLGRP_*
//   - linux/membarrier.h: MEMBARRIER_CMD_GLOBAL
//
// Headers are in the byte order of the host, and the values of netfilter's attributes in network order.
package netlink
