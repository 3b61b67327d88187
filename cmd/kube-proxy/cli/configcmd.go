package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-11a05479/kube-proxy/cmd/kube-proxy/app"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
)

// newConfigCommand builds "kube-proxy config", which works on any machine, without a cluster and without root.
func newConfigCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "config",
		Short: "Convert, check and explain configuration files",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	command.AddCommand(newConvertCommand(), newValidateCommand(), newDefaultsCommand(), newConfigExplainCommand(), newGatesCommand())
	return command
}

// usageArgs makes a wrong number of arguments a usage error.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return app.UsageError{Err: fmt.Errorf("%w: %s", err, cmd.UseLine())}
		}
		return nil
	}
}

// versionFlag adds a flag that takes one of the served versions.
func versionFlag(command *cobra.Command, target *string, name, usage string) {
	command.Flags().StringVar(target, name, config.Version, usage+": "+strings.Join(config.Versions(), " or ")+".")
	complete(command, name, config.Versions())
}

// checkVersion refuses a version that is not served.
func checkVersion(version string) error {
	if !slices.Contains(config.Versions(), version) {
		return app.UsageError{Err: fmt.Errorf("version %q is not served; want one of %s", version, strings.Join(config.Versions(), ", "))}
	}
	return nil
}

// fileHelp is a part of the help of each command with an argument FILE.
const fileHelp = `
FILE may also be a ConfigMap, or objects with one, as kubectl get and kubectl kustomize print them; - is standard input.`

func newConvertCommand() *cobra.Command {
	var from, to, output string
	command := &cobra.Command{
		Use:   "convert FILE",
		Short: "Write a configuration file in another version",
		Long: `Write a configuration file in another version, with every default. Settings that this version lacks are listed on standard error.
` + fileHelp,
		Example: `  kube-proxy config convert config.conf > kube-proxy.yaml
  kube-proxy config convert kube-proxy.yaml --to v1alpha1 -o config.conf
  kubectl -n kube-system get configmap kube-proxy -o yaml | kube-proxy config convert -`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 1 && from != "":
				return app.UsageError{Err: errors.New("FILE and --from exclude each other: name one file to convert")}
			case len(args) == 1:
				from = args[0]
			case from == "":
				return app.UsageError{Err: errors.New("FILE is missing: name the file to convert, or - for standard input")}
			}
			if output == outputJSON || output == outputYAML { // elsewhere -o is a format
				return app.UsageError{Err: fmt.Errorf("-o names a file here, which is JSON if the name ends in .json: write -o ./%s if you want this name", output)}
			}
			if err := checkVersion(to); err != nil {
				return err
			}
			return convert(cmd, from, to, output)
		},
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault), // files
	}
	command.Flags().StringVar(&from, "from", "", "The `file`, in place of FILE.")
	command.Flags().StringVarP(&output, "output", "o", "", "Write to this `file`, not to standard output.")
	versionFlag(command, &to, "to", "Write this `version`")
	return command
}

// convert writes a file in another version, and reports what that version cannot express.
func convert(cmd *cobra.Command, from, to, output string) error {
	l, err := loadValidConfig(cmd, from)
	if err != nil {
		return err
	}
	losses := l.File.Dropped
	if to == config.V1alpha1 {
		losses = append(losses, config.MissingInV1alpha1(l.Config)...)
	}
	if err := app.WriteConfig(output, cmd.OutOrStdout(), l.Config, to); err != nil {
		return err
	}
	for _, warning := range l.Warnings {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", warning)
	}
	for _, loss := range losses {
		fmt.Fprintf(cmd.ErrOrStderr(), "not carried over: %s\n", loss)
	}
	return nil
}

// loadConfig reads a file, a ConfigMap or a List of these, as the proxy would with no flags. It does not validate.
func loadConfig(cmd *cobra.Command, name string) (*app.Loaded, error) {
	file, err := config.ReadManifest(name, cmd.InOrStdin())
	if err != nil {
		return nil, err
	}
	l := &app.Loaded{Config: file.Config, File: file}
	if !file.Config.ConfigHardFail {
		for _, problem := range file.Warnings {
			l.Warnings = append(l.Warnings, problem.String())
		}
	}
	return l, nil
}

// loadValidConfig reads a configuration that is valid on any platform.
func loadValidConfig(cmd *cobra.Command, name string) (*app.Loaded, error) {
	l, err := loadConfig(cmd, name)
	if err != nil {
		return nil, err
	}
	return l, l.Validate("")
}

func newDefaultsCommand() *cobra.Command {
	var version, output string
	command := &cobra.Command{
		Use:   "defaults",
		Short: "Print the default configuration",
		Long: `Print the default configuration of a version; in YAML, a comment lists the defaults that differ between the versions. Those of
v1alpha1 apply without --config.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkVersion(version); err != nil {
				return err
			}
			return printDefaults(cmd.OutOrStdout(), version, output)
		},
	}
	versionFlag(command, &version, "version", "Print this `version`")
	outputFlag(command, &output, outputYAML, outputJSON)
	return command
}

// printDefaults prints the defaults of a version, in YAML below a comment with those that differ in the other version.
func printDefaults(out io.Writer, version, output string) error {
	versioned := config.Versioned(config.DefaultsOf(version), version)
	if output == outputJSON {
		return printObject(out, output, versioned)
	}
	fmt.Fprint(out, "# Defaults that differ between the versions; flags without --config have those of v1alpha1:\n")
	for _, f := range config.Fields() {
		if f.OldDefault != "" {
			fmt.Fprintf(out, "#   %s: %s in v1alpha2, %s in v1alpha1\n", f.Path, f.Default, f.OldDefault)
		}
	}
	return printObject(out, outputYAML, versioned)
}
