package iptables

import (
	"context"
	"errors"
	"slices"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt"
	"github.com/seed-11a05479/kube-proxy/pkg/kernel/ipt/ipttest"
)

// hooked is a door in whose operations a test intervenes.
type hooked struct {
	ipt.Tables
	// around does an operation, which is named after its method, or not, and returns its error; nil does all of them.
	around func(operation, table string, do func() error) error
	// old hides what the programs before 1.8.9 lack.
	old bool
	// other is a chain whose bytes never compare equal.
	other string

	// whole counts reads of a whole table, single reads of single chains.
	whole, single int
	// lists counts chains listed by a program, saves tables printed by one, and writes transactions.
	lists, saves, writes int
}

// fakeOf returns the fake behind a door; nil if it is the kernel's.
func fakeOf(door ipt.Tables) *ipttest.Fake {
	if h, ok := door.(*hooked); ok {
		return fakeOf(h.Tables)
	}
	fake, _ := door.(*ipttest.Fake)
	return fake
}

// once has a function called at the next of some operations, which are done after it, unless there is an error.
func (h *hooked) once(call func() error, operations ...string) {
	h.around = func(operation, _ string, do func() error) error {
		if slices.Contains(operations, operation) {
			h.around = nil
			if err := call(); err != nil {
				return err
			}
		}
		return do()
	}
}

// onceAfter has a function called after the next operation of that name in a table, or in any if that is "".
func (h *hooked) onceAfter(operation, table string, call func()) {
	h.around = func(now, in string, do func() error) error {
		err := do()
		if now == operation && (table == "" || table == in) {
			h.around = nil
			call()
		}
		return err
	}
}

func (h *hooked) do(operation, table string, do func() error) error {
	if h.around == nil {
		return do()
	}
	return h.around(operation, table, do)
}

func (h *hooked) Features() ipt.Features {
	features := h.Tables.Features()
	features.AddressBits = features.AddressBits && !h.old
	return features
}

func (h *hooked) Write(ctx context.Context, transaction *ipt.Transaction) error {
	h.writes++
	return h.do("Write", transaction.Table, func() error { return h.Tables.Write(ctx, transaction) })
}

func (h *hooked) Save(ctx context.Context, table string) (text string, err error) {
	h.saves++
	err = h.do("Save", table, func() error { text, err = h.Tables.Save(ctx, table); return err })
	return text, err
}

func (h *hooked) Compare(ctx context.Context, table string, expected ipt.Expected, chains ...string) (compared map[string]ipt.Compared, err error) {
	if h.old {
		return nil, errors.ErrUnsupported
	}
	if h.single += len(chains); len(chains) == 0 {
		h.whole++
	}
	err = h.do("Compare", table, func() error {
		compared, err = h.Tables.Compare(ctx, table, func(chain string) ([]ipt.Rule, bool) {
			if chain == h.other {
				return []ipt.Rule{ipt.Listed("-j OTHER")}, false
			}
			return expected(chain)
		}, chains...)
		return err
	})
	return compared, err
}

func (h *hooked) Rules(ctx context.Context, table, chain string) (rules []string, err error) {
	h.lists++
	err = h.do("Rules", table, func() error { rules, err = h.Tables.Rules(ctx, table, chain); return err })
	return rules, err
}

func (h *hooked) Insert(ctx context.Context, table string, rules ...ipt.ChainRule) error {
	return h.do("Insert", table, func() error { return h.Tables.Insert(ctx, table, rules...) })
}
