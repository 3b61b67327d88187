// Package app is the kube-proxy command. It parses the command line and the configuration file, and connects the packages that
// do the work; it computes nothing itself (wiring in .golangci.yml).
//
//	app.go          from arguments to an exit code
//	command.go      the root command: from a command line to a call of run
//	flags.go        every flag, in groups
//	options.go      flags and file as one checked configuration
//	planoptions.go  the configuration as options of other packages
//
// Running the proxy:
//
//	run.go          constructs sources, backend, observers, servers and loop, and runs them
//	backends.go     the table of proxy modes
//	sources.go      where objects come from, and where Events go
//	observers.go    health, metrics and everything else that observes syncs
//	view.go         the observer that the commands ask in a running proxy
//	servers.go      the HTTP servers of health, metrics and the other pages
//	grants.go       capabilities that a container may lack
//	followconfig.go reports changes of the configuration file
//	counter*.go     --connection-counters
//
// Commands, each in the file of its name (explaincmd.go, configvalidatecmd.go), and what several of them use:
//
//	output.go       -o json|yaml, and the command "version"
//	readercmd.go    where service, explain, trace and render read: a running proxy, files or a cluster
//	findings.go     the objects that analyze and audit read, and what both print
//	*doors.go       the parts of check and trace that only Linux has; rehearsecmd.go tries the rules for check
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register" // log format json

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config/configfile"
	"github.com/seed-11a05479/kube-proxy/pkg/terminal"
)

// The exit codes: a failure of any kind, and an invalid command line.
const (
	exitFailure = 1
	exitUsage   = 2
)

// Run runs one command line, without the program's name, to its end and returns the exit code of the process.
func Run(args []string, stdout, stderr io.Writer) int {
	defer logs.FlushLogs()

	command := newCommand()
	command.SetArgs(args)
	command.SetOut(stdout)
	command.SetErr(stderr)
	ran, err := command.ExecuteContextC(context.Background())
	if err == nil {
		return 0
	}
	var own exitCode
	if errors.As(err, &own) {
		if err = own.err; err == nil {
			return own.code
		}
	}
	var usage usageError
	var problems configfile.Problems
	switch {
	case errors.As(err, &usage):
		printLines(stderr, "error: ", err)
		fmt.Fprintf(stderr, "See \"%s --help\".\n", ran.CommandPath())
		return exitUsage
	case errors.As(err, &problems):
		printLines(stderr, "", err) // each line begins with file and line
	default:
		printLines(stderr, "error: ", err)
	}
	if own.code != 0 {
		return own.code
	}
	return exitFailure
}

// printLines prints the lines of an error, which may quote objects that were written to deceive a terminal.
func printLines(out io.Writer, prefix string, err error) {
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintln(out, prefix+terminal.Printable(strings.TrimSuffix(line, "\n")))
	}
}

// usageError is an invalid command line.
type usageError struct{ error }

// exitCode ends the program with its own exit code. Without an error nothing is printed.
type exitCode struct {
	code int
	err  error
}

func (e exitCode) Error() string { return fmt.Sprintf("%v (exit code %d)", e.err, e.code) }

func (e exitCode) Unwrap() error { return e.err }
