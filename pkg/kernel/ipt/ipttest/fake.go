// Package ipttest is a fake of package ipt, for tests.
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
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf/nftest"
)

// ErrInjected is the cause of the failures that a test requested of a Fake.
var ErrInjected = errors.New("failure injected by a test")

// Fake is a [ipt.Tables] without a kernel, for tests, as strict as iptables: it refuses a jump to a missing chain, the deletion of
// a chain in use, a rule that does not parse, and a target of another table, and then makes none of that table's changes. It
// keeps the counters of rules that are not rewritten, and formats rules as iptables does.
type Fake struct {
	family   ipt.Family
	features ipt.Features

	mu     sync.Mutex
	tables map[string]*fakeTable
	// kernel notifies of what is written.
	kernel *nftest.Kernel
	// failing and random make writes fail with a probability; refuse returns the error of an input.
	failing float64
	random  *rand.Rand
	refuse  func(input string) error
	stats   Stats
	closed  bool
}

// Stats counts the calls of a Fake.
type Stats struct {
	// Restores are the calls of that method, Saves those of Save and Compare; Failed are failed writes.
	Restores, Saves, Failed int
}

var _ ipt.Tables = (*Fake)(nil)

// New returns tables with only the built-in chains.
func New(family ipt.Family, variant ipt.Variant) *Fake {
	f := &Fake{
		family:   family,
		features: ipt.Features{Variant: variant, AddressBits: true},
		tables:   map[string]*fakeTable{},
		kernel:   nftest.New(),
	}
	for name, chains := range builtin {
		f.tables[name] = newFakeTable(chains)
	}
	return f
}

// UseOldTools replaces the programs by those of iptables 1.8.7, for the nft variant: Compare and [Features.AddressBits] are
// missing from now on. Rules stay, also those that these programs cannot write.
func (f *Fake) UseOldTools() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.features.AddressBits = false
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

// Family is part of [ipt.Tables].
func (f *Fake) Family() ipt.Family { return f.family }

// Features is part of [ipt.Tables].
func (f *Fake) Features() ipt.Features { return f.features }

// Close is part of [ipt.Tables]. Dump still works.
func (f *Fake) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}

// Write is part of [ipt.Tables].
func (f *Fake) Write(ctx context.Context, t *ipt.Transaction) error { return f.Restore(ctx, t.Text()) }

// Restore does what iptables-restore --noflush --counters does with an input.
func (f *Fake) Restore(ctx context.Context, input string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.mayWrite(ctx)
	if err == nil && f.refuse != nil {
		err = f.refuse(input)
	}
	if err == nil {
		err = f.restore(fakeProxy, input)
	}
	f.stats.Restores++
	if err != nil {
		f.stats.Failed++
	}
	return err
}

func (f *Fake) mayWrite(ctx context.Context) error {
	if err := f.mayRead(ctx); err != nil {
		return err
	}
	if f.random != nil && f.random.Float64() < f.failing {
		return fmt.Errorf("iptables %s: %w", f.family, ErrInjected)
	}
	return nil
}

func (f *Fake) mayRead(ctx context.Context) error {
	if f.closed {
		return errors.New("the tables are closed")
	}
	return ctx.Err()
}

// restore applies a whole input of a program, each table's part at its COMMIT.
func (f *Fake) restore(program, input string) error {
	var table *fakeTable
	name, number := "", 0
	for line := range strings.Lines(input) {
		number++
		line = strings.TrimSpace(line)
		var err error
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "*"):
			known := f.tables[line[1:]]
			if table != nil || known == nil {
				err = fmt.Errorf("can't initialize iptables table `%s': Table does not exist (do you need to insmod?)", line[1:])
				break
			}
			name, table = line[1:], known.clone()
		case table == nil:
			err = errors.New("line outside of any table")
		case line == "COMMIT":
			if err = errors.Join(table.loops(), table.misplaced()); err == nil {
				f.replace(program, name, table)
				table = nil
			}
		default:
			err = table.line(line, f.dialect(name))
		}
		if err != nil {
			return &ipt.RestoreError{Family: f.family, Line: number, Text: line, Output: err.Error()}
		}
	}
	if table != nil {
		return &ipt.RestoreError{Family: f.family, Output: "the COMMIT of table " + name + " is missing"}
	}
	return nil
}

func (f *Fake) dialect(table string) dialect { return dialect{f.family, table, f.features} }

// Save is part of [ipt.Tables].
func (f *Fake) Save(ctx context.Context, table string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stats.Saves++
	if err := f.mayRead(ctx); err != nil {
		return "", err
	}
	return f.save(table, true), nil
}

func (f *Fake) save(table string, counters bool) string {
	t := f.tables[table]
	if t == nil {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Generated by iptables-save\n*%s\n", table)
	names := t.names()
	for _, name := range names {
		policy := t.chains[name].policy
		fmt.Fprintf(&b, ":%s %s [0:0]\n", name, policy)
	}
	for _, name := range names {
		for _, rule := range t.chains[name].rules {
			if counters {
				fmt.Fprintf(&b, "[%d:%d] ", rule.packets, rule.bytes)
			}
			fmt.Fprintf(&b, "-A %s %s\n", name, rule.text)
		}
	}
	b.WriteString("COMMIT\n")
	return b.String()
}

// Compare is part of [ipt.Tables].
func (f *Fake) Compare(ctx context.Context, table string, expected ipt.Expected, chains ...string) (map[string]ipt.Compared, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.features.Variant == ipt.Legacy || !f.features.AddressBits {
		return nil, errors.ErrUnsupported
	}
	if len(chains) == 0 {
		f.stats.Saves++
	}
	if err := f.mayRead(ctx); err != nil {
		return nil, err
	}
	out := map[string]ipt.Compared{}
	if t := f.tables[table]; t != nil {
		for name, chain := range t.chains {
			if len(chains) > 0 && !slices.Contains(chains, name) {
				continue
			}
			rules, others := expected(name)
			out[name] = ipt.Compared{Equal: t.equal(chain, rules, others, f.dialect(table)), Rules: len(chain.rules)}
		}
	}
	return out, nil
}

// Dump formats all tables that are not empty, to be printed and compared.
func (f *Fake) Dump() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(f.tables)) {
		if !f.tables[name].untouched() {
			b.WriteString(strings.TrimPrefix(f.save(name, false), "# Generated by iptables-save\n"))
		}
	}
	return b.String()
}

// Rules is part of [ipt.Tables].
func (f *Fake) Rules(_ context.Context, table, chain string) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, err := f.chain(table, chain)
	if err != nil {
		return nil, err
	}
	var rules []string
	for _, rule := range c.rules {
		rules = append(rules, rule.text)
	}
	return rules, nil
}

func (f *Fake) chain(table, chain string) (*fakeChain, error) {
	if t := f.tables[table]; t != nil && t.chains[chain] != nil {
		return t.chains[chain], nil
	}
	return nil, fmt.Errorf("iptables %s: no chain %s in table %s", f.family, chain, table)
}

// Insert is part of [ipt.Tables].
func (f *Fake) Insert(ctx context.Context, table string, rules ...ipt.ChainRule) error {
	return f.change(ctx, table, func(t *fakeTable) (input string, _ error) {
		for _, r := range rules {
			if t.chains[r.Chain] == nil {
				return "", fmt.Errorf("no chain %s", r.Chain)
			}
			held, err := f.holds(table, r.Chain, r.Rule)
			if err != nil {
				return "", err
			}
			if !held {
				input += fmt.Sprintf("-I %s %s\n", r.Chain, r.Rule.Text())
			}
		}
		return input, nil
	})
}

// Append is part of [ipt.Tables].
func (f *Fake) Append(ctx context.Context, table, chain string, rule ipt.Rule) error {
	return f.change(ctx, table, func(t *fakeTable) (input string, _ error) {
		if t.chains[chain] == nil {
			input = fmt.Sprintf(":%s - [0:0]\n", chain)
		} else if held, err := f.holds(table, chain, rule); held || err != nil {
			return "", err
		}
		return input + fmt.Sprintf("-A %s %s\n", chain, rule.Text()), nil
	})
}

// Delete is part of [ipt.Tables].
func (f *Fake) Delete(ctx context.Context, table, chain string, rule ipt.Rule) error {
	return f.change(ctx, table, func(t *fakeTable) (string, error) {
		if t.chains[chain] == nil {
			return "", nil
		}
		held, err := f.holds(table, chain, rule)
		if !held || err != nil {
			return "", err
		}
		return fmt.Sprintf("-D %s %s\n", chain, rule.Text()), nil
	})
}

// change changes single rules: input returns the lines for iptables-restore, none if there is nothing to do.
func (f *Fake) change(ctx context.Context, table string, input func(t *fakeTable) (string, error)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.mayWrite(ctx)
	if err == nil && f.tables[table] == nil {
		err = fmt.Errorf("iptables %s: no table %s", f.family, table)
	}
	lines := ""
	if err == nil {
		lines, err = input(f.tables[table])
	}
	if err == nil && lines != "" {
		err = f.restore(fakeProxy, "*"+table+"\n"+lines+"COMMIT\n")
	}
	if err != nil {
		f.stats.Failed++
		return fmt.Errorf("iptables %s: table %s: %w", f.family, table, err)
	}
	return nil
}

// holds reports whether a chain has a rule.
func (f *Fake) holds(table, chain string, rule ipt.Rule) (bool, error) {
	parsed, err := f.dialect(table).rule(rule, f.tables[table])
	return err == nil && f.tables[table].chains[chain].holds(parsed), err
}

// Packets is part of [ipt.Tables].
func (f *Fake) Packets(ctx context.Context, table string, chains ...string) (map[string][]uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, errors.New("the tables are closed")
	}
	packets := map[string][]uint64{}
	for _, chain := range chains {
		if c, err := f.chain(table, chain); err == nil {
			for _, rule := range c.rules {
				packets[chain] = append(packets[chain], rule.packets)
			}
		}
	}
	return packets, ctx.Err()
}

// WriteExternally changes the tables as another program would. FailRandomly does not apply to it.
func (f *Fake) WriteExternally(input string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.restore(fakeWriter, input)
}

// Count adds packets to the rules of a chain whose text contains words.
func (f *Fake) Count(table, chain, words string, packets uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.tables[table].chains[chain].rules {
		if rule := &f.tables[table].chains[chain].rules[i]; strings.Contains(rule.text, words) {
			rule.packets += packets
		}
	}
}
