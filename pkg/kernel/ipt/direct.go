package ipt

import (
	"context"
	"errors"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// maxKept is the largest buffer that is kept for the next batch, in bytes: that of a first sync is never needed again.
const maxKept = 1 << 20

// errIndirect means that a transaction has to be given to iptables-restore.
var errIndirect = errors.New("the transaction has a rule that was listed, or that iptables would refuse")

// direct reads nf_tables, and writes transactions to it, each in one batch. iptables-nft-restore needs some milliseconds and reads tables first; a batch depends on
// nothing that it would have to read: it creates or empties chains, whatever they hold, and adds rules. So it needs
// no number of the generation either, by which iptables detects that others wrote in between.
//
// The kernel refuses a batch if the table or a built-in chain does not exist yet, or if it lacks a revision of an extension. The caller gives
// the transaction to iptables-restore then.
type direct struct {
	nftRequests
	encoder encoder
	batch   *nf.Batch
	// rule is the expressions of one rule.
	rule []byte
}

func newDirect(conn *nf.Conn, family Family) *direct {
	d := &direct{nftRequests: nftRequests{Conn: conn, family: family}, encoder: encoder{family: family}}
	d.empty()
	return d
}

// empty replaces the batch by an empty one.
func (d *direct) empty() { d.batch = nf.NewBatch(d.family.Number(), "", d.Limit()) }

// write writes a transaction. It returns errIndirect if the program has to do that, which can begin at once, and a *nf.TooLargeError
// if nothing can: what the program makes of it is as large. After any other error the transaction may have been written.
func (d *direct) write(ctx context.Context, t *Transaction) error {
	if !d.encode(t) {
		if err := d.idle(ctx); err != nil { // otherwise an older input could be written after this one
			return err
		}
		return errIndirect
	}
	err := d.Commit(ctx, d.batch)
	if len(d.batch.Bytes()) > maxKept {
		d.empty()
	}
	return err
}

// hook makes packets meet a built-in chain that exists: it wakes the table, and deletes a chain without its hook. iptables-restore adds it
// again; until then no packet met its rules, or only such as they were not made for.
func (d *direct) hook(ctx context.Context, table, chain string) error {
	if meets, err := d.exists(table, chain); meets || err != nil {
		return err
	}
	c, err := d.Chain(d.family.Number(), table, chain)
	if err != nil {
		return existing(err)
	}
	d.batch.Reset()
	d.batch.In(table)
	d.batch.WakeTable()
	if err := d.Commit(ctx, d.batch); err != nil || hooked(table, c) {
		return err
	}
	d.batch.Reset() // on its own: it fails while a rule of another program leads to the chain
	d.batch.In(table)
	d.batch.FlushChain(chain)
	d.batch.DeleteChain(chain)
	return d.Commit(ctx, d.batch)
}

// idle waits until no batch is on its way, which outlasts the call of write whose context ended.
func (d *direct) idle(ctx context.Context) error {
	_, err := d.Do(ctx, func() error { return nil })
	return err
}

// encode encodes a transaction as the batch.
func (d *direct) encode(t *Transaction) (ok bool) {
	d.batch.Reset()
	d.batch.In(t.Table)
	ok = true
	t.each(
		func(chain string) {
			ok = ok && isUserChain(chain)
			d.batch.EnsureChain(chain)
			d.batch.FlushChain(chain)
		},
		func(chain string, r Rule) { ok = ok && isBuiltin(chain) && d.add(d.batch.InsertRule, chain, r) },
		func(chain string, r Rule) { ok = ok && d.add(d.batch.AddRule, chain, r) },
		d.batch.DeleteEmptyChain,
	)
	return ok && d.batch.Len() > 0
}

// add adds a rule to a chain.
func (d *direct) add(to func(chain string, expressions []byte, protocol byte), chain string, rule Rule) bool {
	expressions, protocol, ok := d.encoder.rule(d.rule[:0], rule)
	d.rule = expressions
	if ok {
		to(chain, expressions, protocol)
	}
	return ok
}
