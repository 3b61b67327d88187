package ipt

import (
	"context"
	"errors"
	"strings"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// maxKept is the largest buffer that is kept for the next batch, in bytes: that of a first sync is never needed again.
const maxKept = 1 << 20

// errIndirect means that an input has to be given to iptables-restore.
var errIndirect = errors.New("the input is not of the known forms")

// direct writes the inputs of iptables-restore that have only user chains and rules of known forms (see encoder) to
// nf_tables, each in one batch. iptables-nft-restore needs some milliseconds and reads tables first; a batch depends on
// nothing that it would have to read: it creates or empties chains, whatever they hold, and appends rules. So it needs
// no number of the generation either, by which iptables detects that others wrote in between.
//
// The kernel refuses a batch if the table does not exist yet, or if it lacks a revision of an extension. The caller gives
// the input to iptables-restore then.
type direct struct {
	conn    *nf.Conn
	encoder encoder
	batch   *nf.Batch
	// rule is the expressions of one rule.
	rule []byte
}

func openDirect(family Family) (*direct, error) {
	conn, err := nf.Open()
	if err != nil {
		return nil, err
	}
	d := &direct{conn: conn, encoder: encoder{family: family}}
	d.empty()
	return d, nil
}

// empty replaces the batch by an empty one.
func (d *direct) empty() { d.batch = nf.NewBatch(familyNumber(d.encoder.family), "", d.conn.Limit()) }

func (d *direct) close() error { return d.conn.Close() }

// restore writes an input. It returns errIndirect if the program has to do that, which can begin at once, and a *nf.TooLargeError
// if nothing can: what the program makes of the input is as large. After any other error the input may have been written.
func (d *direct) restore(ctx context.Context, input string) error {
	if !d.encode(input) {
		if err := d.idle(ctx); err != nil { // otherwise an older input could be written after this one
			return err
		}
		return errIndirect
	}
	err := d.conn.Commit(ctx, d.batch)
	if len(d.batch.Bytes()) > maxKept {
		d.empty()
	}
	return err
}

// idle waits until no batch is on its way, which outlasts the call of restore whose context ended.
func (d *direct) idle(ctx context.Context) error {
	_, err := d.conn.Do(ctx, func() error { return nil })
	return err
}

// encode encodes an input as the batch.
func (d *direct) encode(input string) (ok bool) {
	d.batch.Reset()
	table, committed := "", false
	for line := range strings.Lines(input) {
		line = strings.TrimSuffix(line, "\n")
		if committed || line == "" {
			return false
		}
		command, rest, _ := strings.Cut(line, " ")
		switch {
		case table == "":
			if table, ok = strings.CutPrefix(line, "*"); !ok || table == "" {
				return false
			}
			d.batch.In(table)
		case line == "COMMIT":
			committed = true
		case command == "-A":
			chain, rule, _ := strings.Cut(rest, " ")
			ok = isUserChain(chain) && d.add(chain, rule)
		case command == "-X":
			ok = isUserChain(rest)
			d.batch.DeleteEmptyChain(rest)
		default:
			chain, isDeclaration := strings.CutPrefix(command, ":")
			ok = isDeclaration && rest == "- [0:0]" && isUserChain(chain)
			d.batch.EnsureChain(chain)
			d.batch.FlushChain(chain)
		}
		if !ok {
			return false
		}
	}
	return committed && d.batch.Len() > 0
}

// add adds a rule at the end of a chain.
func (d *direct) add(chain, rule string) bool {
	expressions, protocol, ok := d.encoder.rule(d.rule[:0], rule)
	d.rule = expressions
	if ok {
		d.batch.AddRule(chain, expressions, protocol)
	}
	return ok
}
