package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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

		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			verflag.PrintAndExitIfRequested() // every command has the flag --version
			return checkValues(cmd)
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return app.RunProxy(cmd, opts) },
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
		complete(command, flag, values)
	}
	setHelp(command, groups)
	command.AddCommand(newServiceCommand(), newFleetCommand(), newExplainCommand(), newTraceCommand(), newRenderCommand(), newDriftCommand(), newDrainCommand(), newAnalyzeCommand(), newCheckCommand(),
		newAuditCommand(), newConfigCommand(), newVersionCommand())
	command.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	completeFiles(command)
	return command
}

// noArgs rejects arguments, and suggests subcommands that are similar to the first one.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	cmd.SuggestionsMinimumDistance = 2
	if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
		hint = "; did you mean " + strings.Join(similar, " or ") + "?"
	}
	return app.UsageError{Err: fmt.Errorf("unknown command or argument %q for %q%s", args[0], cmd.CommandPath(), hint)}
}

// accepted is the annotation of a flag with the values that it accepts.
const accepted = "accepted"

// accept makes a flag accept only its default and these values, also as items of a list, and completes them.
func accept(command *cobra.Command, flag string, values []string) {
	_ = command.Flags().SetAnnotation(flag, accepted, values)
	complete(command, flag, values)
}

// complete lets shells complete the values of a flag; of a list, its last item.
func complete(command *cobra.Command, flag string, values []string) {
	_ = command.RegisterFlagCompletionFunc(flag, func(_ *cobra.Command, _ []string, typed string) (all []string, _ cobra.ShellCompDirective) {
		for _, value := range values {
			all = append(all, typed[:strings.LastIndexByte(typed, ',')+1]+value)
		}
		return all, cobra.ShellCompDirectiveNoFileComp
	})
}

// completeFiles lets shells complete the names of files where flags take them.
func completeFiles(command *cobra.Command) {
	command.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if kind, _ := pflag.UnquoteUsage(f); kind == "file" || kind == "directory" {
			_ = command.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault))
		}
	})
	for _, sub := range command.Commands() {
		completeFiles(sub)
	}
}

// checkValues returns a usage error if flags have values that they do not accept.
func checkValues(cmd *cobra.Command) error {
	var all []error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		values, known := []string{f.Value.String()}, f.Annotations[accepted]
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, value := range values {
			if known != nil && value != f.DefValue && !slices.Contains(known, value) {
				all = append(all, app.UsageError{Err: fmt.Errorf("--%s %q is not one of %s", f.Name, value, strings.Join(known, ", "))})
			}
		}
	})
	return errors.Join(all...)
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
