package app

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/config"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/config/configfile"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/config/scheme"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/config/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/config/v1alpha2"
	"github.com/seed-11a05479/kube-proxy/pkg/apis/config/validation"
)

// newConfigCommand builds "kube-proxy config", which works on any machine, without a cluster and without root.
func newConfigCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "config",
		Short: "Convert, check and explain configuration files",
		Args:  usageArgs(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	command.AddCommand(newConvertCommand(), newValidateCommand(), newDefaultsCommand(), newExplainCommand(), newGatesCommand())
	return command
}

// usageArgs makes a wrong number of arguments a usage error.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError{err}
		}
		return nil
	}
}

// versionFlag adds a flag that takes one of the served versions.
func versionFlag(command *cobra.Command, target *string, name, usage string) {
	command.Flags().StringVar(target, name, v1alpha2.Version, usage+": "+strings.Join(scheme.Versions(), " or ")+".")
	_ = command.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(scheme.Versions(), cobra.ShellCompDirectiveNoFileComp))
}

// checkVersion refuses a version that is not served.
func checkVersion(version string) error {
	if !slices.Contains(scheme.Versions(), version) {
		return usageError{fmt.Errorf("version %q is not served; want one of %s", version, strings.Join(scheme.Versions(), ", "))}
	}
	return nil
}

func newConvertCommand() *cobra.Command {
	var from, to, output string
	command := &cobra.Command{
		Use:   "convert --from FILE [--to VERSION] [-o FILE]",
		Short: "Write a configuration file in another version",
		Long: `Writes the configuration of FILE in another version, with every default spelled out, so that it behaves as
before. What the other version cannot say is told on standard error, one line a field.`,
		Example: `  kube-proxy config convert --from config.conf > kube-proxy.yaml
  kube-proxy config convert --from kube-proxy.yaml --to v1alpha1 -o config.conf`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if from == "" {
				return usageError{errors.New("--from is missing: name the file to convert, or - for standard input")}
			}
			if err := checkVersion(to); err != nil {
				return err
			}
			return convert(cmd, from, to, output)
		},
	}
	command.Flags().StringVar(&from, "from", "", "`file` to convert; - is standard input.")
	command.Flags().StringVarP(&output, "output", "o", "", "`file` to write; standard output by default.")
	versionFlag(command, &to, "to", "`version` to write")
	return command
}

// convert writes a file in another version and tells what is lost.
func convert(cmd *cobra.Command, from, to, output string) error {
	l, err := loadConfig(cmd, from)
	if err != nil {
		return err
	}
	losses := l.file.Dropped
	if to == v1alpha1.Version {
		losses = append(losses, v1alpha1.MissingIn(l.cfg)...)
	}
	if err := writeConfig(output, cmd.OutOrStdout(), l.cfg, to); err != nil {
		return err
	}
	for _, warning := range l.warnings {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", warning)
	}
	for _, loss := range losses {
		fmt.Fprintf(cmd.ErrOrStderr(), "not carried over: %s\n", loss)
	}
	return nil
}

// loadConfig reads and checks a file as the proxy would, with no flags.
func loadConfig(cmd *cobra.Command, name string) (*loaded, error) {
	var file *configfile.File
	var err error
	if name == "-" {
		file, err = configfile.ReadFrom("<stdin>", cmd.InOrStdin())
	} else {
		file, err = configfile.Read(name)
	}
	if err != nil {
		return nil, err
	}
	l := &loaded{cfg: file.Config, file: file}
	if !file.Config.ConfigHardFail {
		for _, problem := range file.Warnings {
			l.warnings = append(l.warnings, problem.String())
		}
	}
	return l, l.validate()
}

func newValidateCommand() *cobra.Command {
	var strict bool
	command := &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check configuration files",
		Long: `Checks configuration files of any version, and tells every error with its file, line and field. Exits with 0 if
all are valid, with 1 if one is not.`,
		Args: usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			return validateFiles(cmd, names, strict)
		},
	}
	command.Flags().BoolVar(&strict, "strict", false, "Let warnings count as errors.")
	return command
}

// errInvalid ends "config validate" when everything has been said.
var errInvalid = errors.New("not all files are valid")

// validateFiles checks each file and says its verdict.
func validateFiles(cmd *cobra.Command, names []string, strict bool) error {
	failed := false
	for _, name := range names {
		l, err := loadConfig(cmd, name)
		if err != nil {
			fmt.Fprintln(cmd.ErrOrStderr(), err)
			failed = true
			continue
		}
		warnings := l.warnings
		for _, loss := range l.file.Dropped {
			warnings = append(warnings, fmt.Sprintf("%s: %s", name, loss))
		}
		if err := l.check(validation.Startable(l.cfg, "linux")); err != nil && l.cfg.Mode != config.ProxyModeKernelspace {
			warnings = append(warnings, "cannot be started: "+err.Error())
		}
		for _, warning := range warnings {
			fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", warning)
		}
		if strict && len(warnings) > 0 {
			failed = true
			continue
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s: valid (%s)\n", name, l.file.Version)
	}
	if failed {
		return errInvalid
	}
	return nil
}

func newDefaultsCommand() *cobra.Command {
	var version string
	command := &cobra.Command{
		Use:   "defaults [--version VERSION]",
		Short: "Print the configuration that a file means which says nothing",
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkVersion(version); err != nil {
				return err
			}
			cfg, err := configfile.Defaults(version)
			if err != nil {
				return err
			}
			return writeConfig("", cmd.OutOrStdout(), cfg, version)
		},
	}
	versionFlag(command, &version, "version", "`version` to print")
	return command
}
