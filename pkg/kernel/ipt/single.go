package ipt

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// Rules is part of [Tables].
func (t *kernelTables) Rules(ctx context.Context, table, chain string) (rules []string, _ error) {
	out, err := t.single(ctx, table, "--list-rules", chain)
	for line := range strings.Lines(out) {
		if rule, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "-A "+chain+" "); ok {
			rules = append(rules, rule)
		}
	}
	return rules, singleError("list the rules of", table, chain, err)
}

// Insert is part of [Tables].
func (t *kernelTables) Insert(ctx context.Context, table string, rules ...Rule) error {
	var missing strings.Builder
	for _, r := range rules {
		words, err := Words(r.Text)
		exists := false
		if err == nil {
			exists, err = t.exists(ctx, table, "--check", r.Chain, words...)
		}
		if err != nil {
			return singleError("insert a rule into", table, r.Chain, err)
		}
		if !exists {
			fmt.Fprintf(&missing, "-I %s %s\n", r.Chain, r.Text)
		}
	}
	if missing.Len() == 0 {
		return nil
	}
	if err := t.Restore(ctx, "*"+table+"\n"+missing.String()+"COMMIT\n"); err != nil {
		return fmt.Errorf("insert rules into table %s: %w", table, err)
	}
	return nil
}

// Append is part of [Tables].
func (t *kernelTables) Append(ctx context.Context, table, chain string, rule ...string) error {
	exists, err := t.exists(ctx, table, "--list-rules", chain)
	if err == nil && !exists {
		_, err = t.single(ctx, table, "--new-chain", chain)
	}
	if err == nil {
		exists, err = t.exists(ctx, table, "--check", chain, rule...)
	}
	if err == nil && !exists {
		_, err = t.single(ctx, table, "--append", chain, rule...)
	}
	return singleError("append a rule to", table, chain, err)
}

// Delete is part of [Tables].
func (t *kernelTables) Delete(ctx context.Context, table, chain string, rule ...string) error {
	exists, err := t.exists(ctx, table, "--check", chain, rule...)
	if err == nil && exists {
		_, err = t.single(ctx, table, "--delete", chain, rule...)
	}
	return singleError("delete a rule from", table, chain, err)
}

// single runs one command of iptables on a chain.
func (t *kernelTables) single(ctx context.Context, table, command, chain string, rule ...string) (string, error) {
	args := append([]string{"--wait", strconv.Itoa(LockWait), "--table", table, command, chain}, rule...)
	return t.run(ctx, "", t.programs.iptables, args...)
}

// exists reports whether a command succeeds that asks for a rule or chain.
func (t *kernelTables) exists(ctx context.Context, table, command, chain string, rule ...string) (bool, error) {
	_, err := t.single(ctx, table, command, chain, rule...)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 1 {
		return false, nil
	}
	return err == nil, err
}

// singleError adds the operation to an error.
func singleError(what, table, chain string, err error) error {
	if err != nil {
		return fmt.Errorf("%s %s in table %s: %w", what, chain, table, err)
	}
	return nil
}
