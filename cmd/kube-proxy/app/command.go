package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/metrics"
	metricsfeatures "k8s.io/component-base/metrics/features"
	"k8s.io/component-base/term"
	"k8s.io/component-base/version"
	"k8s.io/component-base/version/verflag"
	"k8s.io/klog/v2"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/config/configfile"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/config/configfile/watch"
)

// newCommand returns the root command with its subcommands.
func newCommand() *cobra.Command {
	opts := newOptions()
	command := &cobra.Command{
		Use: "kube-proxy",
		Long: `Serve Kubernetes Services on this node: program the kernel to send packets for a Service's address to one of its endpoints.

The configuration is a file (--config), or else the flags. "kube-proxy config" checks, converts and explains such files.`,
		Example: `  kube-proxy --config=/var/lib/kube-proxy/config.conf --hostname-override=$(NODE_NAME)
  kube-proxy --proxy-mode=nftables --cluster-cidr=10.244.0.0/16 --write-config-to=kube-proxy.yaml`,
		Args:          noArgs,
		SilenceErrors: true,
		SilenceUsage:  true,

		SuggestionsMinimumDistance: 2,
		// Every command has the flag --version.
		PersistentPreRun: func(*cobra.Command, []string) { verflag.PrintAndExitIfRequested() },
		RunE:             func(cmd *cobra.Command, _ []string) error { return runProxy(cmd, opts) },
	}
	command.SetGlobalNormalizationFunc(cliflag.WordSepNormalizeFunc)
	command.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })

	groups := opts.flagSets()
	for _, group := range groups.Order {
		command.Flags().AddFlagSet(groups.FlagSets[group])
	}
	for flag, values := range map[string][]string{
		"proxy-mode":        servedModes(),
		"detect-local-mode": {"ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"},
		"logging-format":    {"text", "json"},
	} {
		_ = command.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	setHelp(command, groups)
	command.AddCommand(newServiceCommand(), newExplainCommand(), newTraceCommand(), newRenderCommand(), newDriftCommand(), newDrainCommand(), newAnalyzeCommand(), newCheckCommand(),
		newAuditCommand(), newConfigCommand(), newVersionCommand())
	return command
}

// noArgs rejects arguments, and suggests subcommands that are similar to the first one.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
		hint = "; did you mean " + strings.Join(similar, " or ") + "?"
	}
	return usageError{fmt.Errorf("unknown command or argument %q for %q%s", args[0], cmd.CommandPath(), hint)}
}

// checkOneOf returns a usage error if a flag has a value that is not one of those it accepts.
func checkOneOf(flag string, accepted []string, values ...string) error {
	for _, value := range values {
		if !slices.Contains(accepted, value) {
			return usageError{fmt.Errorf("--%s %q is not one of %s", flag, value, strings.Join(accepted, ", "))}
		}
	}
	return nil
}

// runProxy runs the proxy with the parsed flags.
func runProxy(cmd *cobra.Command, opts *options) error {
	loaded, err := opts.load(cmd.Flags())
	if err != nil {
		return loaded.fatal(err)
	}
	if opts.writeConfigTo != "" {
		for _, warning := range loaded.warnings {
			fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", warning)
		}
		return writeConfig(opts.writeConfigTo, cmd.OutOrStdout(), loaded.cfg, config.Version)
	}
	if err := logsapi.ValidateAndApply(loaded.cfg.Logging.Shared(), loaded.features.Gate); err != nil {
		return err
	}
	logger := klog.FromContext(cmd.Context())
	started := []any{"version", version.Get().GitVersion}
	if opts.configFile != "" {
		started = append(started, "config", opts.configFile)
	}
	logger.Info("Starting kube-proxy", started...)
	for _, warning := range loaded.warnings {
		logger.Info("Configuration warning", "warning", warning)
	}
	metricsfeatures.ApplyFeatureGates(loaded.features.Gate)
	loaded.features.AddMetrics()
	if loaded.cfg.ShowHiddenMetricsForVersion != "" {
		metrics.SetShowHidden()
	}
	// Signals before this point end the process at once: there is nothing to finish.
	ctx, stop := untilSignal(cmd.Context())
	defer stop()
	switch err := run(ctx, loaded.cfg, opts.runOptions(loaded, cmd.Flags())); {
	case err == nil:
		logger.Info("kube-proxy ended")
		return nil
	case errors.Is(err, watch.ErrChanged):
		logger.Info("kube-proxy ends on purpose, to be started again", "reason", err.Error())
	default:
		logger.Error(err, "kube-proxy failed")
	}
	return exitCode{exitFailure, nil}
}

// fatal logs an invalid configuration if its logging section, or a flag, selects JSON, because log collectors expect an object
// on each line. Otherwise it returns the error, to be printed as text.
func (l *loaded) fatal(err error) error {
	if l == nil || l.cfg.Logging.Format != logsapi.JSONLogFormat || logsapi.ValidateAndApply(l.cfg.Logging.Shared(), l.features.Gate) != nil {
		return err
	}
	var problems configfile.Problems
	if !errors.As(err, &problems) {
		klog.ErrorS(err, "Invalid configuration")
	}
	for _, p := range problems {
		klog.ErrorS(nil, "Invalid configuration", "file", p.File, "line", p.Line, "field", p.Field, "detail", p.Detail)
	}
	return exitCode{exitFailure, nil}
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

// setHelp prints the root command's flags in groups, and leaves the subcommands' help as it is.
func setHelp(root *cobra.Command, groups cliflag.NamedFlagSets) {
	width, _, _ := term.TerminalSize(root.OutOrStdout())
	plain := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if cmd != root {
			plain(cmd, args)
			return
		}
		out := cmd.OutOrStdout()
		fmt.Fprintf(out, "%s\n\nUsage:\n  %s [flags]\n  %s [command]\n\nExamples:\n%s\n\nCommands:\n", cmd.Long, cmd.Name(), cmd.Name(), cmd.Example)
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				fmt.Fprintf(out, "  %-12s %s\n", sub.Name(), sub.Short)
			}
		}
		cliflag.PrintSections(out, groups, width)
	})
}
