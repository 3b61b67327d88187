// Package app runs the proxy. It turns flags and configuration file into one checked configuration, and connects the packages that do
// the work; it computes nothing itself (wiring in .golangci.yml).
//
//	start.go        from a parsed command line to a running proxy
//	flags.go        every flag, in groups
//	options.go      flags and file as one checked configuration
//	planoptions.go  the configuration as options of other packages
//	thisnode.go     the node that it describes, before anything is opened
//	run.go          constructs sources, backend, observers, servers and loop, and runs them
//	backends.go     the table of proxy modes, and the limits of their counters
//	sources.go      where objects come from, and where Events go
//	observers.go    health, metrics, the observer that the commands ask, and everything else that observes syncs
//	canary.go       the observer that tries the rules, with what it asks of other packages
//	servers.go      the HTTP servers of health, metrics and the other pages
//	followconfig.go reports changes of the configuration file
//	choice.go       flags that accept only a few values
package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // log format json
	"k8s.io/component-base/metrics"
	metricsfeatures "k8s.io/component-base/metrics/features"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
)

// The exit codes: a failure of any kind, and an invalid command line.
const (
	ExitFailure = 1
	ExitUsage   = 2
)

// UsageError is an invalid command line.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }

// ExitCode ends the program with its own exit code. Without an error nothing is printed.
type ExitCode struct {
	Code int
	Err  error
}

func (e ExitCode) Error() string { return fmt.Sprintf("%v (exit code %d)", e.Err, e.Code) }

func (e ExitCode) Unwrap() error { return e.Err }

// RunProxy runs the proxy with the parsed flags.
func RunProxy(cmd *cobra.Command, opts *Options) error {
	loaded, err := opts.load(cmd.Flags())
	if err != nil {
		return loaded.fatal(err)
	}
	if opts.writeConfigTo != "" {
		for _, warning := range loaded.Warnings {
			fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", warning)
		}
		return WriteConfig(opts.writeConfigTo, cmd.OutOrStdout(), loaded.Config, config.Version)
	}
	if err := logsapi.ValidateAndApply(loaded.Config.Logging.Shared(), loaded.Features.Gate); err != nil {
		return err
	}
	logger := klog.FromContext(cmd.Context())
	started := []any{"version", version.Get().GitVersion}
	if opts.ConfigFile != "" {
		started = append(started, "config", opts.ConfigFile)
	}
	logger.Info("Starting kube-proxy", started...)
	for _, warning := range loaded.Warnings {
		logger.Info("Configuration warning", "warning", warning)
	}
	metricsfeatures.ApplyFeatureGates(loaded.Features.Gate)
	loaded.Features.Gate.AddMetrics() // kubernetes_feature_enabled
	if loaded.Config.ShowHiddenMetricsForVersion != "" {
		metrics.SetShowHidden()
	}
	// Signals before this point end the process at once: there is nothing to finish.
	ctx, stop := untilSignal(cmd.Context())
	defer stop()
	switch err := run(ctx, loaded.Config, opts.runOptions(loaded, cmd.Flags())); {
	case err == nil:
		logger.Info("kube-proxy ended")
		return nil
	case errors.Is(err, config.ErrChanged):
		logger.Info("kube-proxy ends on purpose, to be started again", "reason", err.Error())
	default:
		logger.Error(err, "kube-proxy failed")
	}
	return ExitCode{Code: ExitFailure}
}

// fatal logs an invalid configuration if its logging section, or a flag, selects JSON, because log collectors expect an object
// on each line. Otherwise it returns the error, to be printed as text.
func (l *Loaded) fatal(err error) error {
	if l == nil || l.Config.Logging.Format != logsapi.JSONLogFormat || logsapi.ValidateAndApply(l.Config.Logging.Shared(), l.Features.Gate) != nil {
		return err
	}
	var problems config.Problems
	if !errors.As(err, &problems) {
		klog.ErrorS(err, "Invalid configuration")
	}
	for _, p := range problems {
		klog.ErrorS(nil, "Invalid configuration", "file", p.File, "line", p.Line, "field", p.Field, "detail", p.Detail)
	}
	return ExitCode{Code: ExitFailure}
}

// untilSignal returns a context that ends at the first SIGINT or SIGTERM, which is logged. A second one ends the process.
func untilSignal(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		defer signal.Stop(signals)
		select {
		case received := <-signals:
			klog.FromContext(ctx).Info("Received a signal; finishing the current sync and ending. Rules stay in force", "signal", received.String())
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
