package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/term"
	"k8s.io/component-base/version/verflag"

	"github.com/seed-11a05479/kube-proxy/cmd/kube-proxy/app"
)

// newCommand returns the root command with its subcommands.
func newCommand() *cobra.Command {
	opts := app.NewOptions()
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
		RunE:             func(cmd *cobra.Command, _ []string) error { return app.RunProxy(cmd, opts) },
	}
	command.SetGlobalNormalizationFunc(cliflag.WordSepNormalizeFunc)
	command.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return app.UsageError{Err: err} })

	groups := opts.FlagSets()
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
	command.AddCommand(newServiceCommand(), newExplainCommand(), newTraceCommand(), newRenderCommand(), newDriftCommand(), newAnalyzeCommand(), newCheckCommand(),
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
	return app.UsageError{Err: fmt.Errorf("unknown command or argument %q for %q%s", args[0], cmd.CommandPath(), hint)}
}

// checkOneOf returns a usage error if a flag has a value that is not one of those it accepts.
func checkOneOf(flag string, accepted []string, values ...string) error {
	for _, value := range values {
		if !slices.Contains(accepted, value) {
			return app.UsageError{Err: fmt.Errorf("--%s %q is not one of %s", flag, value, strings.Join(accepted, ", "))}
		}
	}
	return nil
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
