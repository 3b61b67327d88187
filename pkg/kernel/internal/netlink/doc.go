// Package netlink is what the doors share to talk to netfilter over netlink: building and reading messages, requests and
// dumps, reads that other transactions interrupt, error words, and waiting for packets.
//
// It holds nothing that belongs to one subsystem: commands, attributes and their meaning are the doors'. Buffers are reused
// and no message is copied, so that what a callback gets is valid until it returns. docs/decisions/0016 says why this is not
// a library.
//
// Layouts and numbers are those of the kernel's headers:
//
//   - linux/netlink.h: struct nlmsghdr, struct nlattr, NLM_F_*, NLMSG_*, NLMSGERR_ATTR_*
//   - linux/netfilter/nfnetlink.h: struct nfgenmsg, NFNL_SUBSYS_*, NFNL_MSG_BATCH_*, NFNLGRP_*
//   - linux/membarrier.h: MEMBARRIER_CMD_GLOBAL
//
// Headers are in the byte order of the host, and the values of netfilter's attributes in network order.
package netlink
