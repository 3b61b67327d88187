package ipt

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Messages and attributes of linux/netfilter/nf_tables.h.
const (
	nftNewChain = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWCHAIN
	nftDelChain = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_DELCHAIN
	nftNewRule  = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWRULE
	nftDelRule  = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_DELRULE
	nftNewGen   = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWGEN

	genProgram = 3 // NFTA_GEN_PROC_NAME
)

// noticesBuffer is how many bytes of notices the kernel keeps until they are read: of some 20,000 rules.
const noticesBuffer = 8 << 20

// notices hears what nf_tables tells of each transaction in the network namespace, as it is made. The kernel's work for it
// follows what is written, and so does ours.
type notices struct {
	socket int
	family byte
	buffer []byte
}

// openNotices begins to hear.
func openNotices(family byte) (*notices, error) {
	socket, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	err = unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, noticesBuffer)
	if err == nil {
		err = unix.Bind(socket, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (unix.NFNLGRP_NFTABLES - 1)})
	}
	if err != nil {
		unix.Close(socket)
		return nil, fmt.Errorf("hear of transactions: %w", err)
	}
	return &notices{socket: socket, family: family, buffer: make([]byte, netlinkBuffer)}, nil
}

func (n *notices) close() error { return unix.Close(n.socket) }

// heard reads what was told since the last call.
func (n *notices) heard() (*Changes, error) {
	c := &Changes{Chains: map[ChainName]string{}}
	var open []ChainName // of the transaction whose end was not told yet
	for {
		size, _, err := unix.Recvfrom(n.socket, n.buffer, unix.MSG_TRUNC)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return c, nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOBUFS): // more than the buffer holds
			c.More = true
			continue
		case err != nil:
			return nil, fmt.Errorf("hear of nf_tables' transactions: %w", err)
		case size > len(n.buffer):
			c.More = true
			size = len(n.buffer)
		}
		for rest := n.buffer[:size]; len(rest) >= netlinkHeader+nfnlHeader; {
			length := int(binary.NativeEndian.Uint32(rest))
			if length < netlinkHeader+nfnlHeader || length > len(rest) {
				break
			}
			open = n.take(c, open, rest[:length])
			rest = rest[min(len(rest), (length+3)&^3):]
		}
	}
}

// take takes note of one message. A transaction ends with its generation's, which tells who made it.
func (n *notices) take(c *Changes, open []ChainName, message []byte) []ChainName {
	attrs := message[netlinkHeader+nfnlHeader:]
	kind, tableAttr, chainAttr := binary.NativeEndian.Uint16(message[4:]), uint16(ruleTable), uint16(ruleChain)
	switch kind {
	case nftNewGen:
		eachAttr(attrs, func(kind uint16, value []byte) {
			if kind == genProgram {
				for _, name := range open {
					c.Chains[name] = text(value)
				}
			}
		})
		return open[:0]
	case nftNewChain, nftDelChain:
		tableAttr, chainAttr = chainTable, chainName
	case nftNewRule, nftDelRule:
	default:
		return open
	}
	if message[netlinkHeader] != n.family {
		return open
	}
	var table, chain []byte
	eachAttr(attrs, func(kind uint16, value []byte) {
		switch kind {
		case tableAttr:
			table = value
		case chainAttr:
			chain = value
		}
	})
	if last := len(open) - 1; last >= 0 && same(open[last].Chain, chain) && same(open[last].Table, table) {
		return open // another rule of that chain
	}
	name := ChainName{text(table), text(chain)}
	if _, known := c.Chains[name]; !known {
		c.Chains[name] = ""
	}
	return append(open, name)
}

// same compares a string with an attribute's.
func same(s string, value []byte) bool {
	return len(value) == len(s)+1 && string(value[:len(s)]) == s
}
