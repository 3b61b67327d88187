// go-runner runs a command and writes its output to a file, for images without a shell. kops starts kube-proxy through it:
//
//	/go-runner --log-file=/var/log/kube-proxy.log --also-stdout /usr/local/bin/kube-proxy --config=...
//
// The flags are those of kube-log-runner, with which Kubernetes' own images have it: --log-file-size and --log-file-age rotate the log
// file and remove old ones, and --flush-interval flushes it to disk; go-runner --help describes each. Rotation renames the file, which
// the kernel refuses for a file that is itself a mount, as in kops' pod: mount its folder.
//
// Signals go on to the command, and its exit code is returned.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	code, err := run(os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "go-runner:", err)
	}
	os.Exit(code)
}

// The exit codes of go-runner's own failures: a command line that cannot be understood, and a command that cannot be run,
// as of a shell.
const (
	exitUsage     = 2
	exitCannotRun = 126
)

// run runs one command line and returns the exit code of the command. A command that a signal ended has 128 and the
// signal's number, as in a shell.
func run(args []string, stdout, stderr io.Writer) (int, error) {
	flags := flag.NewFlagSet("go-runner", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var logging logOptions
	logging.register(flags)
	alsoStdout := flags.Bool("also-stdout", false, "write the command's output to standard output, too")
	redirectStderr := flags.Bool("redirect-stderr", true, "treat the command's standard error like its output")
	if err := flags.Parse(args); err != nil {
		return exitUsage, nil // the flag set has reported it
	}
	if flags.NArg() == 0 {
		return exitUsage, errors.New("no command; use go-runner [--log-file=FILE] [--also-stdout] COMMAND [ARGUMENT...]")
	}
	out := stdout
	if logging.path != "" {
		log, err := openLog(logging, stderr, time.Now)
		if err != nil {
			return exitCannotRun, err
		}
		defer log.Close()
		defer log.flushing()()
		out = log.output()
		if *alsoStdout {
			out = &tee{out, stdout}
		}
	}
	cmd := exec.Command(flags.Arg(0), flags.Args()[1:]...) //nolint:noctx // it ends by the signals that are passed on
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, out, stderr
	if *redirectStderr {
		cmd.Stderr = out
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return exitCannotRun, err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			_ = cmd.Process.Signal(s) // it may have ended already
		case err := <-done:
			return exitCode(err)
		}
	}
}

// tee writes to both of its writers, whatever fails: after an error here, the command would be ended by a signal with its next line, and
// a full disk must not end it. It is used as a pointer, so that package exec sees that output and errors go to the same one, and
// writes one after the other.
type tee struct{ first, second io.Writer }

func (t *tee) Write(p []byte) (int, error) {
	_, _ = t.first.Write(p)
	_, _ = t.second.Write(p)
	return len(p), nil
}

// exitCode is that of a command that has ended.
func exitCode(err error) (int, error) {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case !errors.As(err, &exit):
		return exitCannotRun, err
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return exit.ExitCode(), nil
}
