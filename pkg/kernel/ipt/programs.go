package ipt

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-iptables/iptables"
)

// Programs is what the programs of iptables do with one family's tables, in one variant.
type Programs interface {
	// Restore does what iptables-restore --noflush --counters does with an input.
	Restore(ctx context.Context, input string) error
	// The others are those of [Tables]. Packets is for the legacy variant.
	Save(ctx context.Context, table string) (string, error)
	Rules(ctx context.Context, table, chain string) ([]string, error)
	Append(ctx context.Context, table, chain string, rule Rule) error
	Delete(ctx context.Context, table, chain string, rule Rule) error
	Packets(ctx context.Context, table string, chains ...string) (map[string][]uint64, error)
}

// programs are the programs that are installed, by their paths.
type programs struct {
	family                  Family
	variant                 Variant
	iptables, restore, save string
	// plain calls the first one, for single rules; calls holds what it is doing.
	plain *iptables.IPTables
	calls chan struct{}
}

// since reports whether the programs are of a version, or later.
func (p *programs) since(major, minor, patch int) bool {
	a, b, c := p.plain.GetIptablesVersion()
	return slices.Compare([]int{a, b, c}, []int{major, minor, patch}) >= 0
}

// stem returns the common part of the names of a family's programs.
func (f Family) stem() string {
	if f == IPv6 {
		return "ip6tables"
	}
	return "iptables"
}

// find finds a variant's programs by their own names, or else by the common names.
func find(ctx context.Context, family Family, variant Variant) (programs, error) {
	failed := ErrMissing
	for _, stem := range []string{family.stem() + "-" + string(variant), family.stem()} {
		p, err := try(ctx, family, stem, variant)
		if err == nil {
			return p, nil
		}
		if errors.Is(failed, ErrMissing) { // otherwise the programs are there and fail, which matters more
			failed = err
		}
	}
	return programs{}, fmt.Errorf("iptables %s, variant %s: %w", family, variant, failed)
}

// try finds the programs with one stem, and their version.
func try(ctx context.Context, family Family, stem string, variant Variant) (p programs, err error) {
	p.family, p.variant, p.calls = family, variant, make(chan struct{}, 1)
	for _, at := range []struct {
		path *string
		name string
	}{{&p.iptables, stem}, {&p.restore, stem + "-restore"}, {&p.save, stem + "-save"}} {
		if *at.path, err = exec.LookPath(at.name); err != nil {
			return p, fmt.Errorf("%s is not in PATH: %w", at.name, ErrMissing)
		}
	}
	if stem == family.stem() { // of either variant
		printed, err := versionOf(ctx, p.iptables)
		if is := strings.Contains(printed, "(nf_tables)"); err != nil || is != (variant == NFT) {
			return p, cmp.Or(err, fmt.Errorf("%s is not of the variant %s, but %q: %w", p.iptables, variant, printed, ErrMissing))
		}
	}
	protocol := iptables.ProtocolIPv4
	if family == IPv6 {
		protocol = iptables.ProtocolIPv6
	}
	err = leave(ctx, func() (err error) {
		p.plain, err = iptables.New(iptables.Path(p.iptables), iptables.IPFamily(protocol), iptables.Timeout(LockWait))
		return err
	})
	if err != nil { // the library does not keep what the program says
		_, why := versionOf(ctx, p.iptables)
		return p, fmt.Errorf("%s: %w", p.iptables, errors.Join(err, why))
	}
	if !p.since(1, 8, 0) {
		return p, fmt.Errorf("%s is too old: %w", p.iptables, ErrMissing)
	}
	return p, nil
}

// versionOf returns what a program prints of its version, such as "iptables v1.8.9 (nf_tables)".
func versionOf(ctx context.Context, program string) (string, error) {
	command := exec.CommandContext(ctx, program, "--version")
	command.WaitDelay = outputDelay
	out, err := command.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w: %s", program, err, brief(out))
	}
	return brief(out), nil
}

// Version returns the version and variant of the programs of a family that are used for a variant, such as "v1.8.9 (nf_tables)".
func Version(ctx context.Context, family Family, variant Variant) (string, error) {
	found, err := find(ctx, family, variant)
	if err != nil {
		return "", err
	}
	printed, err := versionOf(ctx, found.iptables)
	_, version, _ := strings.Cut(printed, " ")
	return version, err
}

// outputDelay is how long the output of a program that has ended or was killed may stay open in programs that it started. It is
// long, because reading what a program has written takes some time too, on a machine that is busy.
const outputDelay = 5 * time.Second

// exitLocked is RESOURCE_PROBLEM of xtables.h: the exit status of a program that could not get the lock, for example.
const exitLocked = 4

// Restore is part of [Programs].
func (p *programs) Restore(ctx context.Context, input string) error {
	_, err := p.run(ctx, input, p.restore, "--noflush", "--counters", "--wait", strconv.Itoa(LockWait))
	return err
}

// Save is part of [Programs].
func (p *programs) Save(ctx context.Context, table string) (string, error) {
	if p.variant == Legacy && !legacyTableExists(p.family, table) {
		return "", nil // reading would create it
	}
	out, err := p.run(ctx, "", p.save, "--counters", "--table", table)
	whole := strings.Contains(out, "*"+table+"\n") && strings.Contains(out, "\nCOMMIT\n")
	if err == nil && out != "" && !whole {
		return "", fmt.Errorf("iptables %s: the output of %s is not a whole table: %s", p.family, p.save, brief([]byte(out)))
	}
	return out, err
}

// run runs a program and returns its output.
func (p *programs) run(ctx context.Context, input, program string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(ctx, program, args...)
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(input), &stdout, &stderr
	command.WaitDelay = outputDelay
	err := command.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return stdout.String(), nil
	case ctx.Err() != nil:
		return "", fmt.Errorf("iptables %s: %s did not finish in time: %w", p.family, program, context.Cause(ctx))
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("iptables %s: run %s: %w: %w", p.family, program, err, ErrMissing)
	case errors.Is(err, exec.ErrWaitDelay):
		return "", fmt.Errorf("iptables %s: %s has ended, but its output is still open, perhaps in a program that it started: %w", p.family, program, err)
	case !errors.As(err, &exit):
		return "", fmt.Errorf("iptables %s: run %s: %w", p.family, program, err)
	case exit.ExitCode() == exitLocked && strings.Contains(stderr.String(), "xtables lock"):
		return "", fmt.Errorf("iptables %s: %s gave up after %d s: %w", p.family, program, LockWait, ErrLocked)
	case input == "" || exit.ExitCode() < 0:
		return "", fmt.Errorf("iptables %s: %s: %w: %s%s", p.family, program, err, brief(stderr.Bytes()), adviceFor(stderr.String()))
	}
	return "", p.refused(input, stderr.Bytes())
}

// brief shortens a program's output to its first relevant lines, on one line.
func brief(out []byte) string {
	var kept []string
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "Try `") {
			continue
		}
		kept = append(kept, line)
	}
	if len(kept) > 4 {
		kept = append(kept[:4], "...")
	}
	return strings.Join(kept, "; ")
}

var blamedLine = regexp.MustCompile(`(?:line:? )(\d+)`)

// refused returns the error for an input that was refused.
func (p *programs) refused(input string, stderr []byte) *RestoreError {
	e := &RestoreError{Family: p.family, Output: brief(stderr), Large: bytes.Contains(stderr, []byte("Message too long"))}
	match := blamedLine.FindSubmatch(stderr)
	if match == nil {
		return e
	}
	number, _ := strconv.Atoi(string(match[1]))
	if text := lineOf(input, number); text != "" && text != "COMMIT" {
		e.Line, e.Text = number, text
	}
	return e
}

// lineOf returns the nth line of a text, from 1.
func lineOf(text string, n int) string {
	at := 0
	for line := range strings.Lines(text) {
		at++
		if at == n {
			return strings.TrimSpace(line)
		}
	}
	return ""
}
