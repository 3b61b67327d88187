package faults

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nft"
)

// failing makes operations of doors fail at random, or block until they are given up.
type failing struct {
	mu     sync.Mutex
	random *rand.Rand
	// share of the operations fail with one of errors.
	share  float64
	errors []error
	// hangs is open while operations wait: until it is closed, or for the end of their context.
	hangs chan struct{}
	// lasts is the number of operations after which all fail, as if the process were killed; 0 is no limit.
	lasts int
	// calls and failed count the operations.
	calls, failed int
}

// kinds are what netlink and the tools fail with.
func kinds() []error {
	return []error{unix.EAGAIN, unix.ENOBUFS, unix.EINTR, unix.ERESTART, unix.EPERM, unix.EEXIST, unix.ENOENT}
}

// errKilled is what all operations of a killed process return.
var errKilled = errors.New("killed by a test")

// killed ends after a number of operations.
func killed(after int) *failing { return &failing{lasts: after} }

func newFailing(seed uint64) *failing { return &failing{random: rand.New(rand.NewPCG(seed, seed))} }

// set changes what fails.
func (f *failing) set(share float64, hangs bool, errors ...error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.share, f.errors = share, errors
	if f.hangs != nil {
		close(f.hangs)
		f.hangs = nil
	}
	if hangs {
		f.hangs = make(chan struct{})
	}
}

// counts returns the operations so far, and the failed ones.
func (f *failing) counts() (calls, failed int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls, f.failed
}

// fails returns the error of an operation, nil if it is to be done.
func (f *failing) fails(ctx context.Context) error {
	f.mu.Lock()
	hangs := f.hangs
	f.mu.Unlock()
	err := f.next()
	if hangs != nil {
		select {
		case <-hangs:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return err
}

// next is fails for an operation that never waits.
func (f *failing) next() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	if f.lasts > 0 && f.calls > f.lasts {
		f.failed++
		return errKilled
	}
	if len(f.errors) == 0 || f.random.Float64() >= f.share {
		return nil
	}
	f.failed++
	return f.errors[f.random.IntN(len(f.errors))]
}

// batchError makes an error number that of a batch, like the kernel's answer.
func batchError(err error) error {
	if errno, ok := err.(unix.Errno); ok { //nolint:errorlint // it is one of kinds
		return &nf.Refusal{Errno: errno}
	}
	return err
}

// table is an nft.Table whose operations fail.
type table struct {
	nft.Table
	*failing
}

func (f *failing) table(of nft.Table) nft.Table {
	if f == nil {
		return of
	}
	return &table{of, f}
}

func (t *table) Again() (nft.Table, error) {
	again, err := t.Table.Again()
	return t.table(again), err
}

func (t *table) Run(ctx context.Context, tx *nft.Transaction) error {
	if err := t.fails(ctx); err != nil {
		return err
	}
	return t.Table.Run(ctx, tx)
}

func (t *table) Commit(ctx context.Context, b *nf.Batch) error {
	if b.Len() > 0 {
		if err := t.fails(ctx); err != nil {
			return batchError(err)
		}
	}
	return t.Table.Commit(ctx, b)
}

func (t *table) Objects(ctx context.Context) (nf.Objects, error) {
	if err := t.fails(ctx); err != nil {
		return nf.Objects{}, err
	}
	return t.Table.Objects(ctx)
}

func (t *table) Fingerprint(ctx context.Context, except string) (string, map[string]string, error) {
	if err := t.fails(ctx); err != nil {
		return "", nil, err
	}
	return t.Table.Fingerprint(ctx, except)
}

func (t *table) Elements(ctx context.Context, set string) iter.Seq2[nf.Element, error] {
	return t.dump(ctx, t.Table.Elements(ctx, set))
}

func (t *table) Find(ctx context.Context, set string, keys iter.Seq[[]byte]) iter.Seq2[nf.Element, error] {
	return t.dump(ctx, t.Table.Find(ctx, set, keys))
}

// dump fails in the middle of a listing.
func (t *table) dump(ctx context.Context, all iter.Seq2[nf.Element, error]) iter.Seq2[nf.Element, error] {
	return func(yield func(nf.Element, error) bool) {
		err := t.fails(ctx)
		for e, failed := range all {
			if !yield(e, failed) {
				return
			}
			if err != nil {
				break
			}
		}
		if err != nil {
			yield(nf.Element{}, err)
		}
	}
}

// tables is an ipt.Tables whose operations fail.
type tables struct {
	ipt.Tables
	*failing
}

func (f *failing) tables(of ipt.Tables) ipt.Tables {
	if f == nil {
		return of
	}
	return &tables{of, f}
}

func (t *tables) Write(ctx context.Context, transaction *ipt.Transaction) error {
	if err := t.fails(ctx); err != nil {
		if err == unix.EEXIST || err == unix.ENOENT || err == unix.EAGAIN { //nolint:errorlint // it is one of kinds
			return &ipt.RestoreError{Family: t.Family(), Output: err.Error()} // the program cannot distinguish its input from the kernel
		}
		return err
	}
	return t.Tables.Write(ctx, transaction)
}

func (t *tables) Save(ctx context.Context, name string) (string, error) {
	if err := t.fails(ctx); err != nil {
		return "", err
	}
	return t.Tables.Save(ctx, name)
}

func (t *tables) Compare(ctx context.Context, name string, expected ipt.Expected, chains ...string) (map[string]ipt.Compared, error) {
	if err := t.fails(ctx); err != nil {
		return nil, err
	}
	return t.Tables.Compare(ctx, name, expected, chains...)
}

func (t *tables) Insert(ctx context.Context, name string, rules ...ipt.ChainRule) error {
	if err := t.fails(ctx); err != nil {
		return err
	}
	return t.Tables.Insert(ctx, name, rules...)
}
