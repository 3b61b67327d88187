package nft

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"sigs.k8s.io/knftables"
)

// outputDelay is how long the output of nft may stay open after its end. Reading it takes some time on a machine that is busy.
const outputDelay = 5 * time.Second

// runner is knftables' runner of nft once done is closed, or the reason why there is none. Its start runs nft twice, some 20 ms in
// which others can do something else; it takes no context, and forgets the network namespace of a thread. If nft hangs, its
// goroutine stays behind.
type runner struct {
	done chan struct{}
	nft  knftables.Interface
	err  error
}

// starting starts a runner.
func starting() *runner {
	r := &runner{done: make(chan struct{})}
	go func() {
		r.nft, r.err = knftables.New("", "", knftables.NoObjectCommentEmulation)
		close(r.done)
	}()
	return r
}

// failed reports whether there is no runner, as when nft was missing.
func (r *runner) failed() bool {
	select {
	case <-r.done:
		return r.err != nil
	default:
		return false
	}
}

// run runs a transaction.
func (r *runner) run(ctx context.Context, tx *Transaction) error {
	select {
	case <-ctx.Done():
		return explained(ctx, "nft", ctx.Err())
	case <-r.done:
	}
	if r.err != nil {
		return explained(ctx, "nft", r.err)
	}
	return explained(ctx, "nft", r.nft.Run(ctx, tx.onto(r.nft.NewTransaction())))
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

// check runs nft --check, for which the kernel checks everything and writes nothing.
func check(ctx context.Context, text string) error {
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
	return fmt.Errorf("%w: install nftables %s or later, or use the iptables mode", err, oldest)
}
