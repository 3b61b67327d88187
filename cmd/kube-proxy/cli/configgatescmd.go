package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/seed-11a05479/kube-proxy/pkg/apis/status/v1alpha1"
	"github.com/seed-11a05479/kube-proxy/pkg/features"
	"github.com/seed-11a05479/kube-proxy/pkg/terminal"
)

func newGatesCommand() *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:   "feature-gates",
		Short: "List the feature gates with stage, default, effect and planned end",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			if output != outputText {
				return printGates(out, output)
			}
			for _, gate := range features.Describe() {
				fmt.Fprintf(out, "%s\n%s\nPlanned end: %s.\n\n", gate, terminal.Wrap(gate.Effect, 100), gate.End)
			}
			return nil
		},
	}
	outputFlag(command, &output, outputText, outputJSON, outputYAML)
	return command
}

// gate is a feature gate as it is printed in JSON and YAML.
type gate struct {
	Name    string `json:"name"`
	Stage   string `json:"stage"`
	Default bool   `json:"default"`
	Effect  string `json:"effect"`
	End     string `json:"plannedEnd"`
}

// printGates prints all gates as one object.
func printGates(out io.Writer, output string) error {
	var gates []gate
	for _, g := range features.Describe() {
		gates = append(gates, gate{g.Name, g.Stage, g.Default, g.Effect, g.End})
	}
	return printObject(out, output, struct {
		v1alpha1.TypeMeta
		Items []gate `json:"items"`
	}{v1alpha1.Meta(v1alpha1.KindFeatureGateList), gates})
}
