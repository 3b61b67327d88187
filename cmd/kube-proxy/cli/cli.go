// Package cli is the command line of kube-proxy: the command that runs the proxy as package app does, and those that look at a proxy,
// a cluster or a configuration.
//
//	cli.go       from arguments to an exit code
//	command.go   the root command
//	output.go    -o json|yaml, and the command "version"
//	readercmd.go where service, explain, trace and render read: a running proxy, files or a cluster
//	*doors.go, checkhost.go
//	             the parts of trace and check that only Linux has; rehearsecmd.go tries the rules for check
//
// Each command is in the file of its name (explaincmd.go, configvalidatecmd.go). It parses and connects; it computes nothing itself
// (wiring in .golangci.yml).
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/component-base/logs"

	"github.com/seed-11a05479/kube-proxy/cmd/kube-proxy/app"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/terminal"
)

// Run runs one command line, without the program's name, to its end and returns the exit code of the process.
func Run(args []string, stdout, stderr io.Writer) int {
	defer logs.FlushLogs()

	command := newCommand()
	command.SetArgs(args)
	out := &checked{Writer: stdout}
	if command.SetOut(out); hasWidth(stdout) {
		command.SetOut(stdout) // commands ask for its size
	}
	command.SetErr(stderr)
	ran, err := command.ExecuteContextC(context.Background())
	if err = cmp.Or(err, out.err); err == nil {
		return 0
	}
	var own app.ExitCode
	if errors.As(err, &own) {
		if err = own.Err; err == nil {
			return own.Code
		}
	}
	var usage app.UsageError
	var problems config.Problems
	switch {
	case errors.As(err, &usage):
		printLines(stderr, "error: ", err)
		fmt.Fprintf(stderr, "See \"%s --help\".\n", ran.CommandPath())
		return app.ExitUsage
	case errors.As(err, &problems):
		printLines(stderr, "", err) // each line begins with file and line
	default:
		printLines(stderr, "error: ", err)
	}
	if own.Code != 0 {
		return own.Code
	}
	return app.ExitFailure
}

// checked is a writer that remembers its first error: a command whose output is not whole fails, even if it does not look.
type checked struct {
	io.Writer
	err error
}

func (c *checked) Write(b []byte) (int, error) {
	n, err := c.Writer.Write(b)
	c.err = cmp.Or(c.err, err)
	return n, err
}

// printLines prints the lines of an error, which may quote objects that were written to deceive a terminal.
func printLines(out io.Writer, prefix string, err error) {
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintln(out, prefix+terminal.Printable(strings.TrimSuffix(line, "\n")))
	}
}
