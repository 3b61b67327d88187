package ipt

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// noticesQueue is how many bytes of notifications are kept until they are read: those of some 20,000 rules.
const noticesQueue = 8 << 20

// maxTransaction is how long the rest of a transaction's notifications is waited for. The kernel sends all of them at once.
const maxTransaction = time.Second

// endsWithin is how soon that wait ends after its context.
const endsWithin = 10 * time.Millisecond

// notices receives nf_tables' notifications of each transaction in the network namespace, as it is made. The kernel's work
// for it grows with what is written, and so does ours.
type notices struct {
	socket *netlink.Socket
	family byte
}

func openNotices(family byte, queue int) (*notices, error) {
	socket, err := netlink.Subscribe(unix.NFNLGRP_NFTABLES, queue)
	if err != nil {
		return nil, fmt.Errorf("subscribe to nf_tables' notifications: %w", err)
	}
	return &notices{socket, family}, nil
}

func (n *notices) close() error { return n.socket.Close() }

// received reads the notifications since the last call. If they end within a transaction, it waits for the rest, unless ctx ends:
// otherwise a caller would repair the first chains of a flush, and the others later.
func (n *notices) received(ctx context.Context) (*Changes, error) {
	c := &Changes{Chains: map[ChainName]string{}}
	var open []ChainName // of the transaction whose end has not been read yet
	for deadline := time.Now().Add(maxTransaction); ; {
		lost, err := n.socket.Drain(func(m netlink.Message) { open = n.add(c, open, m) })
		if err != nil {
			return nil, fmt.Errorf("read nf_tables' notifications: %w", err)
		}
		c.More = c.More || lost
		left := time.Until(deadline)
		select {
		case <-ctx.Done():
			return c, nil
		default:
		}
		if len(open) == 0 || c.More || left <= 0 {
			return c, nil
		}
		if err := n.socket.Wait(min(left, endsWithin)); err != nil {
			return nil, fmt.Errorf("wait for nf_tables' notifications: %w", err)
		}
	}
}

// add adds one message to the changes. A transaction ends with the message of its generation, which names the program that
// made it.
func (n *notices) add(c *Changes, open []ChainName, m netlink.Message) []ChainName {
	var tableAttr, chainAttr uint16
	switch m.Type {
	case unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWGEN:
		program := programOf(m)
		for _, name := range open {
			c.Chains[name] = program
		}
		return open[:0]
	case unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWCHAIN, unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_DELCHAIN:
		tableAttr, chainAttr = unix.NFTA_CHAIN_TABLE, unix.NFTA_CHAIN_NAME
	case unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWRULE, unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_DELRULE:
		tableAttr, chainAttr = unix.NFTA_RULE_TABLE, unix.NFTA_RULE_CHAIN
	default:
		return open
	}
	if m.Family != n.family {
		return open
	}
	table, chain := m.Attr(tableAttr), m.Attr(chainAttr)
	if last := len(open) - 1; last >= 0 && equal(open[last].Chain, chain) && equal(open[last].Table, table) {
		return open // another rule of that chain
	}
	name := ChainName{netlink.String(table), netlink.String(chain)}
	if _, known := c.Chains[name]; !known {
		c.Chains[name] = ""
	}
	return append(open, name)
}

// programOf returns the name and the process id of the program that made a transaction.
func programOf(m netlink.Message) string {
	_, program, process := nf.ReadGeneration(m)
	return fmt.Sprintf("%s (process %d)", program, process)
}

// equal compares a string with an attribute's value, and allocates nothing.
func equal(s string, value []byte) bool {
	return len(value) == len(s)+1 && string(value[:len(s)]) == s
}
