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
			if output == outputText {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), info.GitVersion)
				return err
			}
			return printObject(cmd.OutOrStdout(), output, info)
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
