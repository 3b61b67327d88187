// Package ipttest is package ipt on a fake nf_tables, for tests.
package ipttest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf/nftest"
)

// ErrInjected is the cause of the failures that a test requested of a Fake.
var ErrInjected = errors.New("failure injected by a test")

// The programs that write a Fake: its owner, and others.
const (
	fakeProxy  = "kube-proxy"
	fakeWriter = "iptables-nft-re"
)

// Fake is the tables of package ipt on a [nftest.Kernel], with stand-ins for the programs of iptables that are as strict: they refuse a
// rule that does not parse, and a target of another table, and format rules as iptables does. The tables of the legacy variant are such
// a kernel, too, which notifies nobody.
type Fake struct {
	ipt.Tables
	family ipt.Family

	mu       sync.Mutex
	features ipt.Features
	kernel   *nftest.Kernel
	// texts are the rules that were written as bytes: their texts by their expressions, without counters, and the reverse.
	texts map[string]string
	known map[string][]byte
	// failing and random make writes fail with a probability; refuse returns the error of an input.
	failing float64
	random  *rand.Rand
	refuse  func(input string) error
	stats   Stats
	closed  bool
}

// Stats counts the calls of a Fake.
type Stats struct {
	// Restores are the calls of Write and Restore, Saves those of Save, and of Compare for all chains; Failed are failed writes.
	Restores, Saves, Failed int
}

// New returns tables with only the built-in chains.
func New(family ipt.Family, variant ipt.Variant) *Fake {
	f := &Fake{family: family, features: ipt.Features{Variant: variant, AddressBits: true}, kernel: nftest.New(), texts: map[string]string{}, known: map[string][]byte{}}
	for _, name := range slices.Sorted(maps.Keys(builtin)) {
		f.kernel.AddTable(f.named(name))
		b := nf.NewBatch(family.Number(), name, 0)
		for _, chain := range builtin[name] {
			b.AddChain(builtinChain(name, chain))
		}
		if err := f.conn(fakeProxy).Commit(context.Background(), b); err != nil {
			panic(err)
		}
	}
	f.open()
	return f
}

// open opens the tables.
func (f *Fake) open() {
	tables, err := ipt.NewTables(f.family, f.features, programs{f}, func() (*nf.Conn, error) { return f.conn(fakeProxy), nil })
	if err != nil {
		panic(err)
	}
	f.Tables = tables
}

func (f *Fake) conn(program string) *nf.Conn { return nf.New(f.kernel.Open(program, 1)) }

func (f *Fake) named(table string) nf.TableName {
	return nf.TableName{Family: f.family.Number(), Name: table}
}

// UseOldTools replaces the programs by those of iptables 1.8.7, for the nft variant: Compare and [ipt.Features.AddressBits] are
// missing from now on. Rules stay, also those that these programs cannot write.
func (f *Fake) UseOldTools() {
	f.features.AddressBits = false
	f.open()
}

// FailRandomly makes each write fail with probability p from now on; the same ones for the same seed.
func (f *Fake) FailRandomly(p float64, seed uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failing, f.random = p, rand.New(rand.NewPCG(seed, seed))
}

// Refuse makes the inputs fail for which the function returns an error; nil undoes that.
func (f *Fake) Refuse(refuse func(input string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = refuse
}

// Stats returns the counts so far.
func (f *Fake) Stats() Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stats
}

// Close is part of [ipt.Tables]. Dump still works.
func (f *Fake) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return f.Tables.Close()
}

// Write is part of [ipt.Tables].
func (f *Fake) Write(ctx context.Context, t *ipt.Transaction) error {
	for _, c := range t.Chains {
		f.learn(c.Rules...)
	}
	for _, r := range t.Inserted {
		f.learn(r.Rule)
	}
	return f.bulk(ctx, t.Text(), func() error { return f.Tables.Write(ctx, t) })
}

// Restore does what iptables-restore --noflush --counters does with an input.
func (f *Fake) Restore(ctx context.Context, input string) error {
	return f.bulk(ctx, input, func() error { return f.restore(fakeProxy, input) })
}

// bulk makes a write of many rules, unless it has to fail.
func (f *Fake) bulk(ctx context.Context, input string, write func() error) error {
	f.mu.Lock()
	f.stats.Restores++
	refuse := f.refuse
	f.mu.Unlock()
	return f.write(ctx, func() error {
		if refuse != nil {
			if err := refuse(input); err != nil {
				return err
			}
		}
		return write()
	})
}

// write makes a write, unless it has to fail.
func (f *Fake) write(ctx context.Context, write func() error) error {
	err := f.mayRead(ctx, 0)
	f.mu.Lock()
	if err == nil && f.random != nil && f.random.Float64() < f.failing {
		err = fmt.Errorf("iptables %s: %w", f.family, ErrInjected)
	}
	f.mu.Unlock()
	if err == nil {
		err = write()
	}
	if err != nil {
		f.mu.Lock()
		f.stats.Failed++
		f.mu.Unlock()
	}
	return err
}

// mayRead counts readings of whole tables.
func (f *Fake) mayRead(ctx context.Context, saves int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stats.Saves += saves
	if f.closed {
		return errors.New("the tables are closed")
	}
	return ctx.Err()
}

// learn keeps the texts of rules that are written as bytes.
func (f *Fake) learn(rules ...ipt.Rule) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range rules {
		if b, ok := r.Expressions(f.family); ok && f.features.Variant == ipt.NFT {
			f.texts[withoutCounter(b)], f.known[r.Text()] = r.Text(), b
		}
	}
}

// Save is part of [ipt.Tables].
func (f *Fake) Save(ctx context.Context, table string) (string, error) {
	if err := f.mayRead(ctx, 1); err != nil {
		return "", err
	}
	return f.save(table, true), nil
}

// Compare is part of [ipt.Tables]. A deadline does not end it, so that no test depends on how busy the machine is.
func (f *Fake) Compare(ctx context.Context, table string, expected ipt.Expected, chains ...string) (map[string]ipt.Compared, error) {
	endless := context.WithoutCancel(ctx)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		ctx = endless
	}
	if f.features.Variant == ipt.NFT && f.features.AddressBits { // otherwise it is not supported
		saves := 0
		if len(chains) == 0 {
			saves = 1
		}
		if err := f.mayRead(ctx, saves); err != nil {
			return nil, err
		}
	}
	return f.Tables.Compare(endless, table, expected, chains...)
}

// Insert is part of [ipt.Tables].
func (f *Fake) Insert(ctx context.Context, table string, rules ...ipt.ChainRule) error {
	for _, r := range rules {
		f.learn(r.Rule)
	}
	return f.write(ctx, func() error { return f.Tables.Insert(ctx, table, rules...) })
}

// Append is part of [ipt.Tables].
func (f *Fake) Append(ctx context.Context, table, chain string, rule ipt.Rule) error {
	return f.write(ctx, func() error { return f.Tables.Append(ctx, table, chain, rule) })
}

// Delete is part of [ipt.Tables].
func (f *Fake) Delete(ctx context.Context, table, chain string, rule ipt.Rule) error {
	return f.write(ctx, func() error { return f.Tables.Delete(ctx, table, chain, rule) })
}

// Packets is part of [ipt.Tables].
func (f *Fake) Packets(ctx context.Context, table string, chains ...string) (map[string][]uint64, error) {
	if err := f.mayRead(ctx, 0); err != nil {
		return nil, err
	}
	return f.Tables.Packets(ctx, table, chains...)
}

// Dump formats all tables that are not empty, to be printed and compared.
func (f *Fake) Dump() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(builtin)) {
		if text := f.save(name, false); strings.Contains(text, "-A ") || strings.Contains(text, " - [0:0]") {
			b.WriteString(strings.TrimPrefix(text, header))
		}
	}
	return b.String()
}

// WriteExternally changes the tables as another program would. FailRandomly does not apply to it.
func (f *Fake) WriteExternally(input string) error { return f.restore(fakeWriter, input) }

// Count adds packets to the rules of a chain whose text contains words.
func (f *Fake) Count(table, chain, words string, packets uint64) {
	for i, rule := range f.rules(table, chain) {
		if strings.Contains(rule.text, words) {
			f.kernel.CountRule(f.named(table), chain, i, packets)
		}
	}
}
