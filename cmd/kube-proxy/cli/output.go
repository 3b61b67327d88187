package cli

import (
	"encoding/json"
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

// outputFlag adds --output with the formats of a command, the default first.
func outputFlag(command *cobra.Command, output *string, formats ...string) {
	command.Flags().StringVarP(output, "output", "o", formats[0], "Output `format`: "+strings.Join(formats, ", ")+".")
	accept(command, "output", formats)
}

// show prints a value in a format, and its text if that is not JSON or YAML.
func show(cmd *cobra.Command, format string, value any, text func() string) error {
	if format == outputJSON || format == outputYAML {
		return printObject(cmd.OutOrStdout(), format, value)
	}
	_, err := io.WriteString(cmd.OutOrStdout(), text())
	return err
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
	command := &cobra.Command{
		Use:   "version",
		Short: "Print the version of kube-proxy",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			info := version.Get()
			return show(cmd, output, info, func() string { return info.GitVersion + "\n" })
		},
	}
	outputFlag(command, &output, outputText, outputJSON, outputYAML)
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
