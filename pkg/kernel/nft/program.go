package nft

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"github.com/seed-11a05479/kube-proxy/pkg/kernel/nf"
)

// Program is the program nft, for one table.
type Program interface {
	// Run makes a change. If the program refuses it with a number of the kernel, the error is a [*ProgramError].
	Run(ctx context.Context, tx *Transaction) error
	// List returns the table without elements of sets and counters of rules.
	List(ctx context.Context) (string, error)
}

// ProgramError is an error of nft, which has ended by itself, and the kernel's number in it.
type ProgramError struct {
	Errno unix.Errno
	Cause error
}

// Error returns the cause.
func (e *ProgramError) Error() string { return e.Cause.Error() }

// Unwrap returns both.
func (e *ProgramError) Unwrap() []error { return []error{e.Errno, e.Cause} }

// program runs nft in the network namespace of the calling thread.
type program struct {
	family nf.Family
	table  string
	runner knftables.Interface // nil until it is needed
}

// Run is part of [Program].
func (p *program) Run(ctx context.Context, tx *Transaction) (err error) {
	if p.runner == nil {
		p.runner, err = start(ctx, knftables.Family(p.family.String()), p.table)
	}
	if err == nil {
		err = explained(ctx, "nft", p.runner.Run(ctx, tx.Onto(p.runner.NewTransaction())))
	}
	return numbered(err)
}

// List is part of [Program]. Terse leaves out the elements of sets, which may be very many; stateless the counters of rules.
func (p *program) List(ctx context.Context) (string, error) {
	out, err := run(ctx, "", "--stateless", "--terse", "list", "table", p.family.String(), p.table)
	return out, numbered(err)
}

// numbered adds the kernel's error number to an error of nft, so that errors.Is finds it.
func numbered(err error) error {
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || !exit.Exited() {
		return err
	}
	words, _, _ := strings.Cut(err.Error(), "\n")
	for _, errno := range []unix.Errno{
		unix.ENOENT, unix.EEXIST, unix.EBUSY, unix.EOPNOTSUPP, unix.EMLINK, unix.ELOOP, unix.EPERM, unix.ENFILE, unix.EINVAL, unix.EMSGSIZE,
	} {
		if strings.Contains(strings.ToLower(words), errno.Error()) {
			return &ProgramError{errno, err}
		}
	}
	return err
}

// outputDelay is how long the output of nft may stay open after its end. Reading it takes some time on a machine that is busy.
const outputDelay = 5 * time.Second

// start starts knftables' runner of nft, which checks that nft runs, is not too old, and may write: a table of this family, or one
// of both. That takes no context, so it has a goroutine, which stays behind if nft hangs; the check forgets the network namespace
// of a thread.
func start(ctx context.Context, family knftables.Family, table string) (knftables.Interface, error) {
	type started struct {
		runner knftables.Interface
		err    error
	}
	starting := make(chan started, 1)
	go func() {
		runner, err := knftables.New(family, table, knftables.NoObjectCommentEmulation)
		starting <- started{runner, err}
	}()
	select {
	case <-ctx.Done():
		return nil, explained(ctx, "nft", ctx.Err())
	case s := <-starting:
		if _, ran := errors.AsType[*exec.ExitError](s.err); s.err != nil && !ran { // it is missing or too old
			return nil, withInstall(s.err)
		}
		return s.runner, explained(ctx, "nft", s.err)
	}
}

// run runs nft and returns its output.
func run(ctx context.Context, input string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "nft", args...)
	command.Stdin, command.WaitDelay = strings.NewReader(input), outputDelay
	out, err := command.Output()
	return string(out), explained(ctx, "nft "+strings.Join(args, " "), err)
}

// explained returns the error of a program with the first line of its own: the others show the input.
func explained(ctx context.Context, program string, err error) error {
	exit, exited := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s did not finish in time: %w", program, context.Cause(ctx))
	case errors.Is(err, exec.ErrNotFound):
		return withInstall(err)
	case !exited:
		return fmt.Errorf("%s: %w", program, err)
	case crashed(exit):
		return fmt.Errorf("%s: %w: %w", program, exit, errCrash)
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(exit.Stderr)), "\n")
	return fmt.Errorf("%s: %w: %s", program, exit, line)
}

// Version returns what `nft --version` prints after the program's name, such as "v1.0.6 (Lester Gooch #5)".
func Version(ctx context.Context) (string, error) {
	out, err := run(ctx, "", "--version")
	return strings.TrimPrefix(strings.TrimSpace(out), "nftables "), err
}

// Check runs nft --check with a text, for which the kernel checks everything and writes nothing. It may load modules.
func Check(ctx context.Context, text string) error {
	_, err := run(ctx, text, "--check", "-f", "-")
	return err
}

// errCrash means that nft crashed. nft reads all tables before it does anything.
var errCrash = errors.New("nft crashed: a newer nft may have written a table that this one cannot read: use that version or a newer one, " +
	"or remove the table with kube-proxy --cleanup if it is kube-proxy's")

// crashed reports whether a program ended by a fault of its own. Signals of others, as at the end of a context, are none.
func crashed(exit *exec.ExitError) bool {
	switch status, _ := exit.Sys().(syscall.WaitStatus); status.Signal() {
	case syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGILL, syscall.SIGFPE, syscall.SIGABRT:
		return true
	}
	return false
}

// withInstall adds to an error what to install: nft is missing, or too old.
func withInstall(err error) error {
	return fmt.Errorf("%w: install nftables 1.0.1 or later, or use the iptables mode", err)
}
