package ipt

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/netlink"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/internal/nftables"
)

// maxKept is the largest buffer that is kept for the next batch, in bytes: that of a first sync is never needed again.
const maxKept = 1 << 20

// errIndirect means that a transaction has to be given to iptables-restore.
var errIndirect = errors.New("the transaction has a rule that was listed, or that iptables would refuse")

// direct writes transactions to nf_tables, each in one batch. iptables-nft-restore needs some milliseconds and reads tables first; a batch depends on
// nothing that it would have to read: it creates or empties chains, whatever they hold, and adds rules. So it needs
// no number of the generation either, by which iptables detects that others wrote in between.
//
// The kernel refuses a batch if the table or a built-in chain does not exist yet, or if it lacks a revision of an extension. The caller gives
// the input to iptables-restore then.
type direct struct {
	socket  *nftables.Socket
	family  byte
	encoder encoder
	batch   []byte
	// rule is the expressions of one rule.
	rule []byte
}

func openDirect(family Family) (*direct, error) {
	socket, err := nftables.Open()
	if err != nil {
		return nil, err
	}
	return &direct{socket: socket, family: familyNumber(family), encoder: encoder{family: family}}, nil
}

func (d *direct) close() error { return d.socket.Close() }

// tooLargeError means that a batch has more bytes than the socket can send at once; so would the one that a program makes of its input.
type tooLargeError struct{ size, limit int }

func (e *tooLargeError) Error() string {
	return fmt.Sprintf("the transaction has %d bytes, and outside of the initial user namespace at most %d can be sent at once", e.size, e.limit)
}

// write writes a transaction. It returns errIndirect if the program has to do that, which can begin at once, and a *tooLargeError if
// nothing can; after any other error the transaction may have been written.
func (d *direct) write(ctx context.Context, t *Transaction) error {
	messages, ok := d.encode(t)
	if !ok {
		if err := d.idle(ctx); err != nil { // otherwise an older input could be written after this one
			return err
		}
		return errIndirect
	}
	firstSeq := d.socket.Reserve(messages + 1)
	data, lastSeq := nftables.EndBatch(d.batch, firstSeq)
	if limit := d.socket.Limit(); len(data) > limit {
		return &tooLargeError{len(data), limit}
	}
	finished, err := d.socket.Do(ctx, func() error {
		r, err := d.socket.Commit(data, firstSeq, lastSeq)
		return errors.Join(err, r.Err())
	})
	d.batch = data
	if !finished || cap(data) > maxKept {
		d.batch = nil // if it has not finished, the kernel may still be reading the buffer
	}
	return err
}

// idle waits until no batch is on its way, which outlasts the call of write whose context ended.
func (d *direct) idle(ctx context.Context) error {
	_, err := d.socket.Do(ctx, func() error { return nil })
	return err
}

// encode encodes a transaction as the batch, without its end, and returns the number of messages.
func (d *direct) encode(t *Transaction) (messages int, ok bool) {
	d.batch = nftables.BeginBatch(d.batch[:0])
	messages, ok = 1, len(t.Chains)+len(t.Inserted)+len(t.Deleted) > 0
	declare := func(chain string) {
		messages += 2
		ok = ok && isUserChain(chain)
		d.chain(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, t.Table, chain)
		d.chain(unix.NFT_MSG_DELRULE, 0, t.Table, chain)
	}
	for _, c := range t.Chains {
		declare(c.Name)
	}
	for _, name := range t.Deleted {
		declare(name)
	}
	for _, r := range t.Inserted {
		messages++
		ok = ok && isBuiltin(r.Chain) && d.add(0, t.Table, r.Chain, r.Rule)
	}
	for _, c := range t.Chains {
		for _, r := range c.Rules {
			messages++
			ok = ok && d.add(unix.NLM_F_APPEND, t.Table, c.Name, r)
		}
	}
	for _, name := range t.Deleted {
		messages++
		d.chain(unix.NFT_MSG_DELCHAIN, unix.NLM_F_NONREC, t.Table, name) // not together with its rules
	}
	return messages, ok
}

// begin begins an operation.
func (d *direct) begin(command, flags uint16) (start int) {
	start = len(d.batch)
	d.batch = netlink.AppendMessage(d.batch, netlink.Header{
		Type: unix.NFNL_SUBSYS_NFTABLES<<8 | command, Flags: unix.NLM_F_REQUEST | flags, Family: d.family})
	return start
}

// chain adds an operation on a chain: on itself, or on its rules (NFT_MSG_DELRULE).
func (d *direct) chain(command, flags uint16, table, chain string) {
	var tableAttr, chainAttr uint16 = unix.NFTA_CHAIN_TABLE, unix.NFTA_CHAIN_NAME
	if command == unix.NFT_MSG_DELRULE {
		tableAttr, chainAttr = unix.NFTA_RULE_TABLE, unix.NFTA_RULE_CHAIN
	}
	start := d.begin(command, flags)
	d.batch = netlink.AppendString(d.batch, tableAttr, table)
	d.batch = netlink.AppendString(d.batch, chainAttr, chain)
	netlink.EndMessage(d.batch, start)
}

// add adds a rule at the head of a chain, or at its end (NLM_F_APPEND).
func (d *direct) add(flags uint16, table, chain string, rule Rule) bool {
	expressions, protocol, ok := d.encoder.rule(d.rule[:0], rule)
	d.rule = expressions
	if !ok {
		return false
	}
	start := d.begin(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|flags)
	d.batch = netlink.AppendString(d.batch, unix.NFTA_RULE_TABLE, table)
	d.batch = netlink.AppendString(d.batch, unix.NFTA_RULE_CHAIN, chain)
	d.batch = netlink.AppendBytes(d.batch, unix.NFTA_RULE_EXPRESSIONS|unix.NLA_F_NESTED, expressions)
	if protocol != 0 {
		var compat int
		d.batch, compat = netlink.BeginNest(d.batch, unix.NFTA_RULE_COMPAT)
		d.batch = nftables.Numbers{{unix.NFTA_RULE_COMPAT_PROTO, uint32(protocol)}, {unix.NFTA_RULE_COMPAT_FLAGS, 0}}.AppendTo(d.batch)
		netlink.EndNest(d.batch, compat)
	}
	netlink.EndMessage(d.batch, start)
	return true
}
