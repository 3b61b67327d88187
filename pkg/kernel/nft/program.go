package nft

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// outputDelay is how long the output of nft may stay open after its end. Reading it takes some time on a machine that is busy.
const outputDelay = 5 * time.Second

// run runs nft and returns its output. The error has the first line of nft's own: the others show the input.
func run(ctx context.Context, input string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "nft", args...)
	var words strings.Builder
	command.Stdin, command.Stderr = strings.NewReader(input), &words
	command.WaitDelay = outputDelay
	out, err := command.Output()
	what := "nft " + strings.Join(args, " ")
	switch {
	case err == nil:
		return string(out), nil
	case ctx.Err() != nil:
		return "", fmt.Errorf("%s did not finish in time: %w", what, context.Cause(ctx))
	case errors.Is(err, exec.ErrNotFound):
		return "", withInstall(err)
	case crashed(err):
		return "", fmt.Errorf("%s: %w: %w", what, err, errCrash)
	}
	return "", fmt.Errorf("%s: %w: %s", what, err, firstLine(words.String()))
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
func crashed(err error) bool {
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return false
	}
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

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}
