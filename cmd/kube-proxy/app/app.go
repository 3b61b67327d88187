// Package app is the kube-proxy command. It parses the command line and the configuration file, and connects the packages that
// do the work; it computes nothing itself (test/arch/wiring.go).
//
//	app.go         from arguments to an exit code
//	command.go     the root command: from a command line to a call of run
//	flags.go       every flag, in groups
//	options.go     flags and file as one checked configuration
//	watch.go       reports changes of the configuration file
//	configcmd.go   the subcommands "config ..."
//	explaincmd.go  the subcommands "config explain" and "config feature-gates"
//	validatecmd.go the subcommand "config validate"
//	auditcmd.go    the subcommand "audit"; analyzecmd.go "analyze"
//	servicecmd.go  the subcommands "service ..."; connectioncmd.go "explain"; readercmd.go where they read
//	tracecmd.go    the subcommand "trace"; tracedoors.go where it gets packets
//	view.go        the observer that they ask in a running proxy
//	checkcmd.go    the subcommand "check"; checkdoors.go what it reads by, rehearsecmd.go tries the rules
//	output.go      -o json|yaml, and the subcommand "version"
//	run.go         constructs sources, backend, observers, servers and loop, and runs them
//	backends.go    the table of proxy modes
//	sources.go     where objects come from, and where Events go
//	observers.go   health, metrics and everything else that observes syncs
//	servers.go     the HTTP servers of health, metrics and the other pages
//	grants.go      capabilities that a container may lack
//	planoptions.go the configuration as options of other packages
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
	err := command.ExecuteContext(context.Background())
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
		fmt.Fprintf(stderr, "error: %v\nSee \"kube-proxy --help\".\n", err)
		return exitUsage
	case errors.As(err, &problems):
		fmt.Fprintln(stderr, err) // each line begins with file and line
	default:
		for line := range strings.Lines(err.Error()) {
			fmt.Fprintf(stderr, "error: %s\n", strings.TrimSuffix(line, "\n"))
		}
	}
	if own.code != 0 {
		return own.code
	}
	return exitFailure
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
