package app

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
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

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config/v1alpha2"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/config/validation"
)

// newCommand builds the root command with its subcommands.
func newCommand() *cobra.Command {
	opts := newOptions()
	command := &cobra.Command{
		Use: "kube-proxy",
		Long: `Serves Kubernetes Services on this node: packets that meet a Service's address are sent to one of its
endpoints, by rules in the kernel that follow the API server's Services and EndpointSlices.

Either --config names a file, and flags marked "Ignored with --config" have no effect; or the flags say it all.
"kube-proxy config" works with such files on any machine.`,
		Example: `  kube-proxy --config=/var/lib/kube-proxy/config.conf --hostname-override=$(NODE_NAME)
  kube-proxy --proxy-mode=nftables --cluster-cidr=10.244.0.0/16 --write-config-to=kube-proxy.yaml`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("unknown command or argument %q", args[0])}
			}
			return nil
		},
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			verflag.PrintAndExitIfRequested()
			return runProxy(cmd, opts)
		},
	}
	command.SetGlobalNormalizationFunc(cliflag.WordSepNormalizeFunc)
	command.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })

	groups := opts.flagSets()
	for _, group := range groups.Order {
		command.Flags().AddFlagSet(groups.FlagSets[group])
	}
	for flag, values := range map[string][]string{
		"proxy-mode":        {"iptables", "nftables"},
		"detect-local-mode": {"ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"},
		"logging-format":    {"text", "json"},
	} {
		_ = command.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	setHelp(command, groups)
	command.AddCommand(newConfigCommand(), newAuditCommand())
	return command
}

// runProxy goes from the parsed flags to a running proxy.
func runProxy(cmd *cobra.Command, opts *options) error {
	loaded, err := opts.load(cmd.Flags())
	if err != nil {
		return err
	}
	if opts.writeConfigTo != "" {
		for _, warning := range loaded.warnings {
			fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", warning)
		}
		return writeConfig(opts.writeConfigTo, cmd.OutOrStdout(), loaded.cfg, v1alpha2.Version)
	}
	if !opts.cleanup {
		if err := loaded.check(validation.Startable(loaded.cfg, runtime.GOOS)); err != nil {
			return err
		}
	}
	if err := logsapi.ValidateAndApply(&loaded.cfg.Logging, loaded.features.Gate); err != nil {
		return err
	}
	logger := klog.FromContext(cmd.Context())
	logger.Info("Starting kube-proxy", "version", version.Get().GitVersion, "config", opts.configFile)
	for _, warning := range loaded.warnings {
		logger.Info("Configuration warning", "warning", warning)
	}
	metricsfeatures.ApplyFeatureGates(loaded.features.Gate)
	loaded.features.AddMetrics()
	if loaded.cfg.ShowHiddenMetricsForVersion != "" {
		metrics.SetShowHidden()
	}
	// Only a running proxy has something to finish; everything before may end where it stands.
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return run(ctx, loaded.cfg, opts.runOptions(loaded, cmd.Flags()))
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
