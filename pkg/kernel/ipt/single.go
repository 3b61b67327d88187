package ipt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/coreos/go-iptables/iptables"
	"golang.org/x/sys/unix"
)

// Rules is part of [Programs].
func (p *programs) Rules(ctx context.Context, table, chain string) (rules []string, _ error) {
	err := p.single(ctx, "list the rules of", table, chain, func(plain *iptables.IPTables) error {
		lines, err := plain.List(table, chain)
		for _, line := range lines {
			if rule, ok := strings.CutPrefix(line, "-A "+chain+" "); ok {
				rules = append(rules, rule)
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return rules, nil
}

// Append is part of [Programs].
func (p *programs) Append(ctx context.Context, table, chain string, rule Rule) error {
	return p.single(ctx, "append a rule to", table, chain, func(plain *iptables.IPTables) error {
		words, err := rule.args()
		if err != nil {
			return err
		}
		exists, err := plain.ChainExists(table, chain)
		if err == nil && !exists {
			err = plain.NewChain(table, chain)
		}
		if err != nil {
			return err
		}
		return plain.AppendUnique(table, chain, words...)
	})
}

// Delete is part of [Programs].
func (p *programs) Delete(ctx context.Context, table, chain string, rule Rule) error {
	return p.single(ctx, "delete a rule from", table, chain, func(plain *iptables.IPTables) error {
		words, err := rule.args()
		if err != nil {
			return err
		}
		return plain.DeleteIfExists(table, chain, words...)
	})
}

// Packets is part of [Programs]. The kernel is asked, without a program.
func (p *programs) Packets(_ context.Context, table string, chains ...string) (map[string][]uint64, error) {
	counts, err := legacyCounts(p.family, table)
	packets := map[string][]uint64{}
	for _, chain := range chains {
		packets[chain] = counts[chain]
	}
	return packets, err
}

// single calls go-iptables, one call at a time: of those that outlast their context, only one is left behind.
func (p *programs) single(ctx context.Context, what, table, chain string, call func(plain *iptables.IPTables) error) error {
	var err error
	select {
	case p.calls <- struct{}{}:
		err = leave(ctx, func() error {
			defer func() { <-p.calls }()
			return call(p.plain)
		})
	case <-ctx.Done():
		err = fmt.Errorf("an earlier call has not finished: %w", context.Cause(ctx))
	}
	if failed, ok := errors.AsType[*iptables.Error](err); ok {
		words := failed.Error()
		err = fmt.Errorf("%w%s", err, adviceFor(words))
		if failed.ExitStatus() == exitLocked && strings.Contains(words, "xtables lock") {
			err = fmt.Errorf("%s gave up after %d s: %w", p.iptables, LockWait, ErrLocked)
		}
	}
	if err != nil {
		return fmt.Errorf("iptables %s: %s %s in table %s: %w", p.family, what, chain, table, err)
	}
	return nil
}

// leave calls a function of go-iptables, which knows no context. If ctx ends first, the call is left behind. It runs in the network
// namespace of the calling thread.
func leave(ctx context.Context, call func() error) error {
	namespace, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return fmt.Errorf("find this thread's network namespace: %w", err)
	}
	done := make(chan error, 1)
	go func() {
		defer namespace.Close()
		done <- within(namespace, call)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("iptables did not finish in time: %w", context.Cause(ctx))
	}
}

// within calls a function in a network namespace. The thread of another one is not used again.
func within(namespace *os.File, call func() error) error {
	runtime.LockOSThread()
	wanted, err := namespace.Stat()
	own, errOwn := os.Stat("/proc/thread-self/ns/net")
	if err := errors.Join(err, errOwn); err != nil {
		return fmt.Errorf("compare network namespaces: %w", err)
	}
	if os.SameFile(wanted, own) {
		defer runtime.UnlockOSThread()
	} else if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the network namespace of the caller: %w", err)
	}
	return call()
}
