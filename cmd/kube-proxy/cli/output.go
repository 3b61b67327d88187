package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/component-base/version"
	sigsyaml "sigs.k8s.io/yaml"
)

// The values of --output.
const (
	outputText      = "text"
	outputTable     = "table"
	outputWide      = "wide"
	outputName      = "name"
	outputJSON      = "json"
	outputYAML      = "yaml"
	outputManifests = "manifests"
)

// outputFlag adds --output with the formats of a command, the default first. It returns a check of its value.
func outputFlag(command *cobra.Command, output *string, formats ...string) (check func() error) {
	command.Flags().StringVarP(output, "output", "o", formats[0], "Output `format`: "+strings.Join(formats, ", ")+".")
	_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	return func() error { return checkOneOf("output", formats, *output) }
}

// show prints a value in a format, as text does if that is not JSON or YAML.
func show(cmd *cobra.Command, format string, value any, text func(out io.Writer) error) error {
	if format == outputJSON || format == outputYAML {
		return printObject(cmd.OutOrStdout(), format, value)
	}
	return text(cmd.OutOrStdout())
}

// printObject prints a value as JSON or YAML.
func printObject(out io.Writer, format string, value any) error {
	if format == outputYAML {
		text, err := sigsyaml.Marshal(value)
		if err != nil {
			return err
		}
		_, err = out.Write(text)
		return err
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

// newVersionCommand returns "kube-proxy version".
func newVersionCommand() *cobra.Command {
	var output string
	var check func() error
	command := &cobra.Command{
		Use:   "version",
		Short: "Print the version of kube-proxy",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := check(); err != nil {
				return err
			}
			info := version.Get()
			return show(cmd, output, info, func(out io.Writer) error {
				_, err := fmt.Fprintln(out, info.GitVersion)
				return err
			})
		},
	}
	check = outputFlag(command, &output, outputText, outputJSON, outputYAML)
	return command
}

// names converts the values that a flag accepts.
func names[T ~string](values []T) []string {
	var all []string
	for _, value := range values {
		all = append(all, string(value))
	}
	return all
}
